"""Which model answers to a name, and who serves it. A new provider is one line in `ProviderSet`."""

from collections.abc import Mapping

from app.agent.model_effects import Model
from app.domain.model import Hear, ModelRequest, ModelResponse, unheard
from app.errors import NoProvider

DEMO_MODEL = "demo"
"""The name that the demo model answers to, and no other."""

HOW_TO_SET_A_KEY = (
    "Set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN; ANTHROPIC_BASE_URL names another endpoint) "
    'and start the service again, or name the model "demo".'
)


def resolve_model(name: str | None, aliases: Mapping[str, str], default: str) -> str:
    """Give the model that a client's choice stands for: the default if none, aliases replaced.

    An alias stands for a model, never for another alias.
    """
    chosen = default if name is None else name
    return aliases.get(chosen, chosen)


class ProviderSet:
    """The providers of the process: the configured one, and the demo model.

    Fits `Model` itself: each request goes to the provider of its own model.
    """

    def __init__(self, *, provider: Model | None = None, demo: Model | None = None) -> None:
        self._provider = provider
        self._demo = demo

    @property
    def is_configured(self) -> bool:
        """Whether models other than the demo can be asked."""
        return self._provider is not None

    def model(self, name: str) -> Model:
        """Give the model that serves `name` (resolved). Raises `NoProvider`."""
        if name == DEMO_MODEL:
            if self._demo is None:
                raise NoProvider("The demo model is switched off here.")
            return self._demo
        if self._provider is None:
            raise NoProvider(f"No provider serves the model {name!r}. {HOW_TO_SET_A_KEY}")
        return self._provider

    async def respond(self, request: ModelRequest, hear: Hear = unheard) -> ModelResponse:
        """Ask the provider of the request's model. Raises `NoProvider`."""
        return await self.model(request.model).respond(request, hear)
