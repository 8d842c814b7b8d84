"""The model providers that settings name."""

import logging
from contextlib import AsyncExitStack

import httpx
from pydantic import SecretStr

from app.agent.retries import RetryRules
from app.providers.anthropic import AnthropicModel, Timeouts
from app.providers.catalog import ModelCatalog
from app.providers.demo import demo_model_server
from app.providers.endpoint import messages_url, request_headers
from app.providers.pool import model_transport
from app.providers.pricing import PriceTable
from app.providers.registry import HOW_TO_SET_A_KEY, ProviderSet
from app.settings.groups import ModelSettings
from app.settings.settings import Settings
from app.wiring.keep_running import keep_running

log = logging.getLogger(__name__)


async def open_providers(stack: AsyncExitStack, settings: Settings) -> ProviderSet:
    """Open the clients of model providers: the operator's, and the demo model."""
    transport = await stack.enter_async_context(model_transport())
    timeouts = Timeouts(
        connect_s=settings.model.connect_s,
        first_byte_s=settings.model.first_byte_s,
        idle_s=settings.model.idle_s,
    )
    demo = await stack.enter_async_context(demo_model_server())
    provider = None
    if settings.has_provider:
        provider = AnthropicModel(
            transport=transport,
            base_url=settings.model.base_url,
            api_key=_secret(settings.model.api_key),
            auth_token=_secret(settings.model.auth_token),
            extra_headers=settings.model.extra_headers,
            timeouts=timeouts,
            near_limit=settings.model.rate_limit_near,
        )
    else:
        log.warning(
            "No model provider: only the demo model answers. %s",
            HOW_TO_SET_A_KEY,
            extra={"action": "no_provider"},
        )
    return ProviderSet(
        provider=provider,
        demo=AnthropicModel(
            transport=transport,
            base_url=demo.base_url,
            auth_token=demo.auth_token,
            timeouts=timeouts,
        ),
    )


async def open_catalog(
    stack: AsyncExitStack, settings: Settings, prices: PriceTable
) -> ModelCatalog | None:
    """Open what asks the provider about its models; None where there is no provider."""
    if not settings.has_provider:
        return None
    model = settings.model
    catalog = ModelCatalog(
        await stack.enter_async_context(
            httpx.AsyncClient(transport=model_transport(), trust_env=False)
        ),
        messages_url(model.base_url),
        request_headers(_secret(model.api_key), _secret(model.auth_token), model.extra_headers),
        prices.learn,
    )
    await keep_running(stack, catalog.ask_forever)
    return catalog


def _secret(value: SecretStr | None) -> str | None:
    return value.get_secret_value() if value else None


def api_key_source(settings: Settings) -> str:
    """Name where the provider's key comes from, as `init` says it."""
    if settings.model.api_key is not None:
        return "ANTHROPIC_API_KEY"
    return "ANTHROPIC_AUTH_TOKEN" if settings.model.auth_token is not None else "none"


def retry_rules(model: ModelSettings) -> RetryRules:
    """Give how often and how patiently model requests are made again."""
    return RetryRules(
        max_retries=model.max_retries,
        first_delay_s=model.retry_first_delay_s,
        longest_delay_s=model.retry_longest_delay_s,
        longest_asked_delay_s=model.retry_longest_asked_delay_s,
        jitter=model.retry_jitter,
        overloads_before_fallback=model.overloads_before_fallback,
    )
