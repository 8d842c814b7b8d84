import pytest

from app.errors import NoProvider
from app.providers.anthropic import AnthropicModel
from app.providers.pool import model_transport
from app.providers.registry import ProviderSet, resolve_model


@pytest.mark.parametrize(
    ("name", "model"),
    [(None, "claude-a"), ("fast", "claude-b"), ("claude-c", "claude-c"), ("demo", "demo")],
)
def test_a_choice_of_model_is_resolved(name: str | None, model: str) -> None:
    assert resolve_model(name, {"fast": "claude-b", "std": "claude-a"}, "std") == model


async def test_each_name_is_served_by_its_provider() -> None:
    async with model_transport() as transport:
        real = AnthropicModel(transport=transport, base_url="http://real")
        demo = AnthropicModel(transport=transport, base_url="http://demo")
        providers = ProviderSet(provider=real, demo=demo)
        assert providers.is_configured
        assert providers.model("demo") is demo
        assert providers.model("claude-a") is real


async def test_without_a_provider_the_error_says_how_to_set_a_key() -> None:
    async with model_transport() as transport:
        demo = AnthropicModel(transport=transport, base_url="http://demo")
        providers = ProviderSet(demo=demo)
        assert not providers.is_configured
        assert providers.model("demo") is demo
        with pytest.raises(NoProvider, match="ANTHROPIC_API_KEY"):
            providers.model("claude-a")
    with pytest.raises(NoProvider, match="switched off"):
        ProviderSet().model("demo")
