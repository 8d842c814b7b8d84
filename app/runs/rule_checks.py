"""What a client's permission rules and mode are refused for: malformed, or forbidden by a policy."""

from collections.abc import Sequence

from app.domain.ceiling import Ceiling, OperatorRules
from app.domain.options import AgentOptions
from app.domain.text import printable
from app.errors import ValidationFailed
from app.permissions.rules import MalformedRule, parse_rule, withholding


def check_rules(options: AgentOptions) -> None:
    """Refuse what is no rule. Raises `ValidationFailed` naming its place."""
    for option in ("allowed_tools", "disallowed_tools", "ask_tools"):
        for index, rule in enumerate(getattr(options, option)):
            try:
                parse_rule(rule)
            except MalformedRule as error:
                raise _refused(
                    f"{option} holds {_shown(rule)}, which is no rule: {error}.",
                    f"/options/{option}/{index}",
                    "malformed_rule",
                    str(error),
                ) from None


def check_policy(
    options: AgentOptions, rules: OperatorRules, ceiling: Ceiling, forbidden_modes: frozenset[str]
) -> None:
    """Refuse what the service's or the tenant's policy forbids, as far as options show it.

    What they do not show (a command, a host that a rule covers among others) is denied at run time.
    """
    mode = options.permission_mode
    if mode in forbidden_modes | ceiling.forbidden_modes:
        why = "the policy of this service forbids it"
        raise _refused(
            f"The permission mode {mode} is not available: {why}.",
            "/options/permission_mode",
            "not_allowed",
            why,
        )
    denied = tuple(rules.over(ceiling))
    _check_names("tools", options.tools or [], denied)
    _check_names("allowed_tools", options.allowed_tools, denied)


def _check_names(option: str, given: Sequence[str], denied: Sequence[str]) -> None:
    for index, text in enumerate(given):
        if (rule := withholding(text, denied)) is not None:
            why = f"the rule {rule} of this service's policy forbids it"
            raise _refused(
                f"{option} names {_shown(text)}, but {why}.",
                f"/options/{option}/{index}",
                "not_allowed",
                why,
            )


def _shown(text: str) -> str:
    return repr(printable(text)[:200])


def _refused(detail: str, pointer: str, code: str, message: str) -> ValidationFailed:
    return ValidationFailed(detail, errors=[{"pointer": pointer, "code": code, "message": message}])
