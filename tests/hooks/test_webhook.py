"""HTTP hooks against a real server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from standardwebhooks import Webhook

from app.domain.hook_options import HttpHook
from app.domain.hook_outcome import Failed, HookOutcome
from app.domain.hooks import PreToolUse, Surroundings
from app.hooks.command import Shell
from app.hooks.registry import HostHooks, Owner
from app.hooks.runner import RunHooks
from app.hooks.signing import tenant_secret
from app.sandbox.egress import EgressRules
from app.sandbox.guarded_http import Guard
from tests.fakes.hook_server import NEVER, HookServer, Said
from tests.fakes.site import answer

SECRET = "s" * 32
LOCAL = EgressRules(private_hosts=("127.0.0.1",))
DENY = {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}}
PRE = PreToolUse("t", "Bash", {"command": "echo \u2603"}, "t")


@asynccontextmanager
async def opened(
    given: HttpHook, rules: EgressRules = LOCAL, secret: str | None = SECRET
) -> AsyncIterator[RunHooks]:
    host = HostHooks(Guard(rules), secret=secret, user_agent="Treadle/1")
    owner = Owner("tenant_a", "s", "run_1")
    async with host.open(owner, [given], NO_SHELL) as hooks:
        yield hooks


async def _unprepared() -> None:
    raise AssertionError("an HTTP hook needs no workspace")


NO_SHELL = Shell(None, "/workspace", _unprepared)  # type: ignore[arg-type] # HTTP hooks never look


async def fire(given: HttpHook, **host: Any) -> HookOutcome:
    async with opened(given, **host) as hooks:
        return await hooks.fire(PRE, Surroundings("/workspace", "default"))


@pytest.mark.requirement("hooks:http")
async def test_a_request_is_signed_with_the_tenants_secret_and_its_answer_counts() -> None:
    async with HookServer({"PreToolUse": [DENY]}) as server:
        given = HttpHook.model_validate(server.hook("PreToolUse", matcher="Bash"))
        outcome = await fire(given)
        assert outcome.verdict is not None
        assert (outcome.verdict.decision, outcome.verdict.reason) == ("deny", "no")
        (asked,) = server.asked
        body = Webhook(tenant_secret(SECRET, "tenant_a")).verify(asked.body, dict(asked.headers))
        assert body["tool_input"] == {"command": "echo \u2603"}
        assert (asked.method, asked.headers["user-agent"]) == ("POST", "Treadle/1")
        await fire(given)
        assert len({each.headers["webhook-id"] for each in server.asked}) == 1
        with pytest.raises(Exception, match="signature"):
            Webhook(tenant_secret(SECRET, "tenant_b")).verify(asked.body, dict(asked.headers))


@pytest.mark.requirement("hooks:failures")
@pytest.mark.parametrize(
    ("said", "why"),
    [
        (answer(b"down", 500), "the server answered 500"),
        (answer(b"", 302, location="http://127.0.0.1/x"), "the server answered 302"),
        (answer(b"<html>"), "the server's answer is no JSON"),
        (answer(b'"deny"'), "it is no JSON object"),
        (answer(b"[" * 100_000), "the server's answer is no JSON"),
        (answer(b'{"x":"' + b"y" * 2_000_000 + b'"}'), "larger than"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", "the request failed"),
        (b"", "the request failed"),
    ],
)
async def test_a_server_that_answers_badly_has_said_nothing(said: Said, why: str) -> None:
    async with HookServer({"PreToolUse": [said, said]}) as server:
        outcome = await fire(HttpHook.model_validate(server.hook("PreToolUse")))
        failed = outcome.notes[-1]
        assert isinstance(failed, Failed)
        assert why in failed.why
        blocking = HttpHook.model_validate(server.hook("PreToolUse", on_failure="block"))
        assert why in str((await fire(blocking)).closed)


async def test_an_answer_is_json_whatever_charset_the_server_names() -> None:
    said = answer(orjson.dumps(DENY), kind="application/json; charset=base64")
    async with HookServer({"PreToolUse": [said]}) as server:
        outcome = await fire(HttpHook.model_validate(server.hook("PreToolUse")))
        assert outcome.verdict is not None
        assert outcome.verdict.decision == "deny"


@pytest.mark.parametrize("said", [answer(b""), answer(b" \n"), answer(b"", 204), {}])
async def test_an_empty_answer_says_nothing(said: Said) -> None:
    async with HookServer({"PreToolUse": [said]}) as server:
        outcome = await fire(HttpHook.model_validate(server.hook("PreToolUse")))
        assert (outcome.verdict, len(outcome.notes)) == (None, 1)


@pytest.mark.requirement("hooks:timeouts")
async def test_a_server_that_hangs_is_given_up() -> None:
    async with HookServer({"PreToolUse": [NEVER]}) as server:
        outcome = await fire(HttpHook.model_validate(server.hook("PreToolUse", timeout=0.05)))
        assert "within 0.05 s" in str(outcome.closed)


@pytest.mark.requirement("hooks:http")
async def test_a_private_address_is_not_reached_and_the_query_is_not_shown() -> None:
    async with HookServer() as server:
        url = f"{server.url('PreToolUse')}?token=hidden"
        given = HttpHook(event="PreToolUse", url=url)
        (_, failed) = (await fire(given, rules=EgressRules())).notes
        assert isinstance(failed, Failed)
        assert "hidden" not in failed.hook
        assert server.asked == []


@pytest.mark.requirement("hooks:http")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_takes_no_event_elsewhere(status: int) -> None:
    async with HookServer() as server:
        moved = answer(b"", status, location=server.url("Elsewhere"))
        server.script["PreToolUse"] = [moved]
        given = HttpHook.model_validate(server.hook("PreToolUse", on_failure="block"))
        assert f"answered {status}" in str((await fire(given)).closed)
        assert [asked.target for asked in server.asked] == ["/PreToolUse"]


async def test_nothing_is_sent_unsigned() -> None:
    async with HookServer() as server:
        given = HttpHook.model_validate(server.hook("PreToolUse", on_failure="block"))
        assert "TREADLE_HOOKS__SECRET" in str((await fire(given, secret=None)).closed)
        assert server.asked == []
