"""What settings allow, and what they tell clients."""

import importlib.metadata
from collections.abc import Mapping
from typing import Any, get_args

from app.agent.model_effects import Models
from app.domain.ceiling import OperatorRules
from app.domain.permissions import PermissionMode
from app.errors import ConfigError
from app.hooks.accepting import HookRules
from app.permissions.rules import MalformedRule, parse_rule
from app.providers.registry import DEMO_MODEL, HOW_TO_SET_A_KEY, ProviderSet, resolve_model
from app.runs.policy import Policy
from app.sandbox.egress import EgressRules
from app.sandbox.guarded_http import Guard
from app.settings.groups import EgressSettings
from app.settings.settings import Settings
from app.wiring.mcp import check_servers, header_variables

SDK_VERSION = "0.2.189"
"""The SDK whose message parser the compatibility test runs over our messages."""


def version() -> str:
    """Give the program's version."""
    return importlib.metadata.version("treadle")


def policy_of(settings: Settings, providers: ProviderSet, models: Models) -> Policy:
    """Give defaults and ceilings of runs."""
    limits = settings.limits
    return Policy(
        default_model=settings.model.default,
        aliases=settings.model.aliases,
        default_max_turns=limits.default_max_turns,
        ceiling_max_turns=limits.ceiling_max_turns,
        default_max_budget_usd=limits.default_max_budget_usd,
        ceiling_max_budget_usd=limits.ceiling_max_budget_usd,
        has_sandbox=settings.sandbox == "bubblewrap",
        resolve_model=resolve_model,
        is_served=lambda model: model == DEMO_MODEL or providers.is_configured,
        how_to_serve=f"No model provider is configured. {HOW_TO_SET_A_KEY}",
        models=models,
        forbidden_modes=frozenset(settings.policy.forbidden_modes),
        rules=operator_rules(settings),
        check_servers=check_servers(egress_rules(settings.egress), header_variables(settings.mcp)),
        hook_problem=HookRules(
            egress_rules(settings.egress), can_sign=settings.hooks.secret is not None
        ).problem_of,
    )


def operator_rules(settings: Settings) -> OperatorRules:
    """Give the rules over all runs. Raises `ConfigError` for what is no rule or no mode."""
    policy = settings.policy
    for mode in policy.forbidden_modes:
        if mode not in get_args(PermissionMode):
            raise ConfigError(f"TREADLE_POLICY__FORBIDDEN_MODES: {mode!r} is no permission mode.")
    for name in ("deny_tools", "ask_tools", "allow_tools"):
        for rule in getattr(policy, name):
            try:
                parse_rule(rule)
            except MalformedRule as error:
                variable = f"TREADLE_POLICY__{name.upper()}"
                raise ConfigError(f"{variable}: {rule!r} is no rule: {error}.") from None
    return OperatorRules(
        tuple(policy.deny_tools), tuple(policy.ask_tools), tuple(policy.allow_tools)
    )


def egress_rules(egress: EgressSettings) -> EgressRules:
    """Give where the service goes for strangers."""
    allowed = egress.allowed_hosts
    return EgressRules(
        private_hosts=tuple(egress.private_hosts),
        allowed_hosts=None if allowed is None else tuple(allowed),
        denied_hosts=tuple(egress.denied_hosts),
        ports=frozenset(egress.ports),
    )


def open_guard(egress: EgressSettings) -> Guard:
    """Give what the service goes with to places that strangers name. Raises `ConfigError`."""
    try:
        return Guard(egress_rules(egress), ca_file=str(egress.ca_file) if egress.ca_file else None)
    except OSError as error:  # an SSLError is one
        raise ConfigError(
            "TREADLE_EGRESS__CA_FILE: the file holds no certificates that can be read "
            f"({error}). Name a PEM file, or leave it out."
        ) from error


def meta(settings: Settings) -> Mapping[str, Any]:
    """Give what `/v1/meta` tells."""
    limits = settings.limits
    return {
        "version": version(),
        "wire": {"claude_code_version": f"{version()} (Treadle)", "claude_agent_sdk": SDK_VERSION},
        "features": [
            *("runs", "sessions", "fork", "rewind", "continue", "export", "import", "search"),
            *("sse", "previews", "cancel", "compact", "actions", "mcp", "hooks", "skills"),
        ],
        "sandbox": settings.sandbox,
        "models": {
            "default": settings.model.default,
            "aliases": dict(settings.model.aliases),
            "demo": DEMO_MODEL,
            "provider": "configured" if settings.has_provider else f"none. {HOW_TO_SET_A_KEY}",
        },
        "limits": {
            "default_max_turns": limits.default_max_turns,
            "ceiling_max_turns": limits.ceiling_max_turns,
            "default_max_budget_usd": str(limits.default_max_budget_usd),
            "ceiling_max_budget_usd": str(limits.ceiling_max_budget_usd),
            "max_body_bytes": limits.max_body_bytes,
            "queue_per_session": settings.engine.queue_per_session,
        },
        "retention": {"log": "kept", "resume": "any cursor of the log works"},
    }
