"""Whether an HTTP hook of a client's options can work here: said when the run is asked for."""

from dataclasses import dataclass

import httpx

from app.domain.hook_options import HttpHook
from app.errors import EgressRefused
from app.hooks.matching import matcher_of
from app.hooks.registry import CANNOT_SIGN
from app.sandbox.egress import EgressRules


@dataclass(frozen=True, slots=True)
class HookProblem:
    """Why a hook is refused."""

    field: str
    """Of the hook; empty: the hook itself."""
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class HookRules:
    """What a host takes."""

    egress: EgressRules
    can_sign: bool

    def problem_of(self, hook: HttpHook) -> HookProblem | None:
        """Say what is wrong with a hook. Names are not looked up: that is done when it is asked."""
        if not self.can_sign:
            return HookProblem("", "not_available", CANNOT_SIGN)
        try:
            matcher_of(hook.matcher)
        except ValueError as error:
            return HookProblem("matcher", "invalid_pattern", str(error))
        try:
            self.egress.check_url(httpx.URL(hook.url))
        except EgressRefused as error:
            return HookProblem("url", "not_allowed", str(error))
        except httpx.InvalidURL as error:
            return HookProblem("url", "invalid_url", str(error)[:200])
        return None
