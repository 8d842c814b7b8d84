"""Which models are asked beside a run's conversation: for small questions, and to judge calls."""

from dataclasses import dataclass

from app.agent.effects import Stamps
from app.agent.model_effects import Model
from app.agent.retries import RetryRules
from app.agent.state import RunInfo
from app.domain.usage import Usage
from app.providers.registry import DEMO_MODEL, resolve_model
from app.runs.side_model import SmallModel
from app.settings.groups import ModelSettings


@dataclass(frozen=True, slots=True)
class SideModels:
    """What this host asks. The price of each has to be seen where that of a run's own model is."""

    small: str | None
    """None: a run's own model."""
    classifier: str | None
    """What judges calls in the mode `auto`; None: the small model."""
    stamps: Stamps
    retries: RetryRules

    def small_of(self, info: RunInfo, model: Model) -> SmallModel:
        """Give what a run asks small questions; `model` is its provider."""
        own, small = info.options.model or "", self.small
        # A budget that cannot see what is spent beside it would be none.
        if small is None or own == DEMO_MODEL or (self._has_price(own) > self._has_price(small)):
            small = own
        names = dict.fromkeys((small, own))
        return SmallModel(model, tuple(names), self.stamps, self.retries, info.session_id)

    def classifier_of(self, info: RunInfo) -> str | None:
        """Give what judges a run's calls; None: what it asks small questions."""
        own, chosen = info.options.model or "", self.classifier
        is_unseen = chosen is not None and self._has_price(own) > self._has_price(chosen)
        return None if own == DEMO_MODEL or is_unseen else chosen

    def _has_price(self, model: str) -> bool:
        now = self.stamps.clock.now()
        return self.stamps.models.cost_usd(model, Usage(), now) is not None


def side_models(model: ModelSettings, stamps: Stamps, retries: RetryRules) -> SideModels:
    """Give what the settings name, aliases resolved."""

    def named(name: str | None) -> str | None:
        return None if name is None else resolve_model(name, model.aliases, model.default)

    small = None if model.small == "inherit" else model.small
    return SideModels(named(small), named(model.classifier), stamps, retries)
