"""The fields that a trace fixes, by kind of message. What stands on no list is left out."""

from collections.abc import Mapping, Sequence

USAGE_FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)
MODEL_USAGE_FIELDS = (
    "inputTokens",
    "outputTokens",
    "cacheReadInputTokens",
    "cacheCreationInputTokens",
    "costUSD",
    "contextWindow",
    "maxOutputTokens",
    "canonicalModel",
    "costBasis",
)
RESULT_FIELDS = ("subtype", "is_error", "num_turns", "stop_reason", "permission_denials")
OPTIONAL_RESULT_FIELDS = (
    "terminal_reason",
    "result",
    "errors",
    "api_error_status",
    "structured_output",
)
ONLY_NAMED: Mapping[str, object] = {
    "aborted": True,
    "user_message_uuid": "<uuid>",
    "user_message_uuids": ["<uuid>"],
}
"""What traces mostly show by its key alone, with the value that it has then."""
SYSTEM_FIELDS: Mapping[str, Sequence[str]] = {
    "init": ("model", "permissionMode"),
    "thinking_tokens": ("estimated_tokens", "estimated_tokens_delta"),
    "status": ("status",),
}
REQUEST_FIELDS = ("model", "stream", "max_tokens")
OPTIONAL_REQUEST_FIELDS = ("thinking", "output_config")
BLOCK_FIELDS: Mapping[str, Sequence[str]] = {
    "text": ("text",),
    "thinking": ("thinking", "signature"),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id", "content"),
}
KEYS: Mapping[str, frozenset[str]] = {
    "system": frozenset(
        (
            "agents",
            "apiKeySource",
            "claude_code_version",
            "cwd",
            "mcp_servers",
            "model",
            "output_style",
            "permissionMode",
            "plugins",
            "session_id",
            "skills",
            "slash_commands",
            "subtype",
            "tools",
            "type",
            "user_message_uuids",
            "uuid",
        )
    ),
    "assistant": frozenset(
        (
            "aborted",
            "error",
            "message",
            "parent_tool_use_id",
            "session_id",
            "timestamp",
            "type",
            "user_message_uuid",
            "user_message_uuids",
            "uuid",
        )
    ),
    "user": frozenset(
        (
            "isSynthetic",
            "message",
            "parent_tool_use_id",
            "session_id",
            "timestamp",
            "tool_result_meta",
            "tool_use_result",
            "type",
            "uuid",
        )
    ),
    "result": frozenset(
        (
            "api_error_status",
            "duration_api_ms",
            "duration_ms",
            "errors",
            "is_error",
            "modelUsage",
            "model_usage_since_last_result",
            "num_turns",
            "permission_denials",
            "result",
            "session_id",
            "stop_reason",
            "structured_output",
            "subtype",
            "terminal_reason",
            "total_cost_usd",
            "ttft_ms",
            "type",
            "usage",
            "user_message_uuid",
            "user_message_uuids",
            "uuid",
        )
    ),
    "stream_event": frozenset(
        (
            "api_message_id",
            "event",
            "parent_tool_use_id",
            "session_id",
            "ttft_ms",
            "type",
            "uuid",
        )
    ),
    "service_preview_aborted": frozenset(("message_id", "reason", "session_id", "type")),
}
"""Keys whose presence is compared, also where the value is not."""
MESSAGE_KEYS = frozenset(
    ("content", "id", "model", "role", "stop_reason", "stop_sequence", "type", "usage")
)
