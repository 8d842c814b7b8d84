"""Usage on the wire: token counts and costs under the names that existing parsers read."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from app.domain.usage import ModelLimits, ModelSpend, Usage


class CacheCreation(BaseModel):
    ephemeral_5m_input_tokens: int = 0
    ephemeral_1h_input_tokens: int = 0


class WireUsage(BaseModel):
    """Token counts in the Messages API's names."""

    model_config = ConfigDict(frozen=True, extra="allow")

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: dict[str, int]
    server_tool_use: dict[str, int]
    service_tier: str = "standard"
    cache_creation: CacheCreation

    @property
    def prompt_tokens(self) -> int:
        """What the request held, cached or not."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens

    @staticmethod
    def of(usage: Usage) -> "WireUsage":
        """Put a usage into wire form."""
        return WireUsage(
            input_tokens=usage.input_tokens,
            cache_creation_input_tokens=usage.cache_write_tokens,
            cache_read_input_tokens=usage.cache_read_tokens,
            output_tokens=usage.output_tokens,
            output_tokens_details={"thinking_tokens": usage.thinking_tokens},
            server_tool_use={
                "web_search_requests": usage.web_search_requests,
                "web_fetch_requests": 0,
            },
            cache_creation=CacheCreation(
                ephemeral_5m_input_tokens=usage.cache_write_5m_tokens,
                ephemeral_1h_input_tokens=usage.cache_write_1h_tokens,
            ),
        )


class WireModelUsage(BaseModel):
    """One entry of `modelUsage`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    inputTokens: int  # noqa: N815 - the wire's name, as are those below
    outputTokens: int  # noqa: N815
    cacheReadInputTokens: int  # noqa: N815
    cacheCreationInputTokens: int  # noqa: N815
    webSearchRequests: int  # noqa: N815
    costUSD: float  # noqa: N815
    contextWindow: int  # noqa: N815
    maxOutputTokens: int  # noqa: N815
    thinkingTokens: int  # noqa: N815
    cacheCreationEphemeral5mInputTokens: int  # noqa: N815
    cacheCreationEphemeral1hInputTokens: int  # noqa: N815
    canonicalModel: str  # noqa: N815
    costBasis: Literal["list", "unknown"]  # noqa: N815
    """`unknown` when some request of the model had no known price (decisions B24)."""

    @staticmethod
    def of(spend: ModelSpend, limits: ModelLimits, canonical: str) -> "WireModelUsage":
        """Put what a model consumed into wire form."""
        return WireModelUsage(
            inputTokens=spend.usage.input_tokens,
            outputTokens=spend.usage.output_tokens,
            cacheReadInputTokens=spend.usage.cache_read_tokens,
            cacheCreationInputTokens=spend.usage.cache_write_tokens,
            webSearchRequests=spend.usage.web_search_requests,
            costUSD=float(spend.cost_usd),
            contextWindow=limits.context_window,
            maxOutputTokens=limits.max_output,
            thinkingTokens=spend.usage.thinking_tokens,
            cacheCreationEphemeral5mInputTokens=spend.usage.cache_write_5m_tokens,
            cacheCreationEphemeral1hInputTokens=spend.usage.cache_write_1h_tokens,
            canonicalModel=canonical,
            costBasis="unknown" if spend.unpriced else "list",
        )
