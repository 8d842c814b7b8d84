"""What fills a conversation's window, by source. Pure."""

from collections.abc import Mapping, Sequence

from app.agent.offer import offer_of
from app.agent.prompt import system_texts
from app.agent.state import LoopState
from app.compaction.sizes import block_tokens, blocks_tokens, text_tokens
from app.domain.context_usage import ContextCategory, ContextUsage, MessageBreakdown
from app.domain.tools import ToolSpec
from app.domain.usage import Spend, Usage

_KINDS = {b"tool_use": "toolCall", b"tool_result": "toolResult"}
_MEDIA = frozenset({b"image", b"document"})
_HEAD = b'{"type":"'


def context_usage(
    state: LoopState,
    specs: Sequence[ToolSpec],
    spend: Spend,
    *,
    has_search: bool,
    sizes: Mapping[str, int] | None = None,
) -> ContextUsage:
    """Give the report. `specs`: the tools on offer; `has_search`: whether the model has tool search.

    `sizes`: tokens of tools whose specs are not whole here, by name.
    """
    offer = offer_of(specs, state.memory, has_search=has_search)
    tokens_of = {spec.name: block_tokens(spec.encoded) for spec in specs} | dict(sizes or {})
    loaded = {spec.name for spec in (*offer.specs, *offer.found)}
    window = state.run.window
    texts = system_texts(state.run.options.system_prompt)
    tools = [
        (spec.name, tokens_of[spec.name])
        for spec in (*offer.specs, *offer.found)
        if spec.source is None
    ]
    served = [
        {
            "name": spec.name,
            "serverName": spec.source.server,
            "tokens": tokens_of[spec.name],
            "isLoaded": spec.name in loaded,
        }
        for spec in specs
        if spec.source is not None
    ]
    prompt_tokens = text_tokens(texts)
    tool_tokens = sum(tokens for _, tokens in tools)
    served_tokens = sum(
        tokens_of[spec.name] for spec in specs if spec.source and spec.name in loaded
    )
    parts = _parts(state)
    head_tokens = blocks_tokens(state.head)
    fixed = prompt_tokens + tool_tokens + served_tokens + head_tokens
    total = state.tokens if state.used_tokens else fixed + sum(parts.values())
    limit = window.compact_at if window.is_auto else window.tokens
    shares = [
        ("System prompt", prompt_tokens, "purple"),
        ("System tools", tool_tokens, "gray"),
        ("MCP tools", served_tokens, "cyan"),
        ("Memory files", head_tokens, "green"),
        ("Messages", max(0, total - fixed), "blue"),
        ("Free space", max(0, limit - total), "white"),
        ("Autocompact buffer", window.tokens - limit, "orange"),
    ]
    return ContextUsage(
        model=state.model,
        totalTokens=total,
        maxTokens=limit,
        rawMaxTokens=window.tokens,
        percentage=round(100 * total / window.tokens, 1),
        isAutoCompactEnabled=window.is_auto,
        autoCompactThreshold=window.compact_at,
        categories=[
            ContextCategory(name=name, tokens=tokens, color=color) for name, tokens, color in shares
        ],
        messageBreakdown=MessageBreakdown(
            **{f"{name}Tokens": tokens for name, tokens in parts.items()}
        ),
        systemPromptSections=[
            {"name": f"part {number}", "tokens": text_tokens((text,))}
            for number, text in enumerate(texts, 1)
        ],
        systemTools=[{"name": name, "tokens": tokens} for name, tokens in tools],
        mcpTools=served,
        memoryFiles=[
            {"path": path, "type": "Project", "tokens": text_tokens((text,))}
            for path, text in state.briefing.files.items()
        ],
        apiUsage=_api_usage(spend),
    )


def _parts(state: LoopState) -> dict[str, int]:
    names = ("userMessage", "assistantMessage", "toolCall", "toolResult", "attachment", "summary")
    parts = dict.fromkeys(names, 0)
    for at, message in enumerate(state.request_messages()):
        said = message.blocks[len(state.head) :] if at == 0 else message.blocks
        for place, block in enumerate(said):
            kind = block[len(_HEAD) : block.find(b'"', len(_HEAD))]
            name = _KINDS.get(kind, "attachment" if kind in _MEDIA else f"{message.role}Message")
            if state.has_summary and at == place == 0:
                name = "summary"
            parts[name] += block_tokens(block)
    return parts


def _api_usage(spend: Spend) -> dict[str, int]:
    used = sum((part.usage for part in spend.by_model.values()), Usage())
    return {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cache_creation_input_tokens": used.cache_write_tokens,
        "cache_read_input_tokens": used.cache_read_tokens,
    }
