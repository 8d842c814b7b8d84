"""The web, as a run uses it: fetched, asked about, searched, paid for, permitted."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from tests.conftest import MakeSettings
from tests.e2e.test_replicas import results_of
from tests.fakes.messages_api import MessagesApi
from tests.fakes.site import Site, answer
from tests.hosts import Host, host
from tests.runs.prompts import finished, messages, scripted, start
from tests.store.seeds import until

Json = dict[str, Any]
MODEL = {"small": "claude-haiku-4-5", "default": "claude-sonnet-5"}
WEB: Json = {"allowed_tools": ["WebFetch", "WebSearch"]}


@dataclass
class Wired:
    """A host whose operator lists one site."""

    host: Host
    site: Site
    api: MessagesApi

    def fetch(self, prompt: str, path: str = "/") -> Json:
        url = f"http://127.0.0.1:{self.site.port}{path}"
        return {"tool": "WebFetch", "input": {"url": url, "prompt": prompt}}

    async def ledger(self, run: Json) -> list[Json]:
        sql = """SELECT purpose, model, cost_usd, web_search_requests, is_estimated FROM ledger
                 WHERE run_id = $1 AND purpose <> 'main' ORDER BY id"""
        found = await self.host.service.database.raw.fetch(sql, run["id"])
        return [dict(row) for row in found]


@pytest.fixture
async def wired(make_settings: MakeSettings, messages_api: MessagesApi) -> AsyncIterator[Wired]:
    page = answer(b"<h1>Fish</h1><p>They swim.</p>", kind="text/html")
    async with Site({"/": page}) as site:
        egress = {"private_hosts": [f"127.0.0.1:{site.port}"]}
        async with host(make_settings(egress=egress, model=MODEL)) as running:
            yield Wired(running, site, messages_api)


def search(*blocks: Json, usage: Json | None = None, **given: object) -> Json:
    inner = {"blocks": [{"block": block} for block in blocks], "usage": usage or {}}
    return {"tool": "WebSearch", "input": {"query": scripted(inner, text="cats"), **given}}


USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "title": "Cats", "url": "https://c.test/"}],
}
SEARCHED = {"server_tool_use": {"web_search_requests": 3}}


@pytest.mark.requirement("web:fetch")
@pytest.mark.requirement("web:search")
async def test_pages_and_searches_are_answered_beside_the_conversation_and_paid(
    wired: Wired,
) -> None:
    client = wired.host.client
    question = scripted({"text": "They swim, it says."}, text="What do they do?")
    script = scripted(
        [wired.fetch(question), search(USE, FOUND, usage=SEARCHED, allowed_domains=["c.test"])],
        {"text": "done"},
    )
    run = await finished(client, (await start(client, script, **WEB))["id"])
    shown = await messages(client, run["session_id"])
    fetched, searched = sorted(results_of(shown))
    assert fetched == "They swim, it says."
    assert 'Links: [{"title":"Cats","url":"https://c.test/"}]' in searched

    asked = [body for body in wired.api.bodies() if body["model"] == "claude-haiku-4-5"]
    about, find = sorted(asked, key=lambda body: "tools" in body)
    assert "Fish\n====\n\nThey swim." in about["messages"][0]["content"][0]["text"]
    assert find["tools"] == [
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "max_uses": 8,
            "allowed_domains": ["c.test"],
        }
    ]
    assert find["tool_choice"] == {"type": "tool", "name": "web_search"}
    assert "cache_control" not in str(asked)

    ledger = await wired.ledger(run)
    assert [row["purpose"] for row in ledger] == ["tool", "tool"]
    assert sum(row["web_search_requests"] for row in ledger) == 3
    # 100 tokens in, 10 out, each; and a cent a search.
    assert sum(row["cost_usd"] for row in ledger) == Decimal("0.0303")
    result = shown[-1]
    assert result["usage"]["server_tool_use"]["web_search_requests"] == 3
    assert result["usage"]["input_tokens"] == 200
    small = result["modelUsage"]["claude-haiku-4-5"]
    assert (small["webSearchRequests"], small["inputTokens"]) == (3, 200)
    assert result["total_cost_usd"] > 0.0303

    again = await start(client, scripted({"text": "hi"}), session_id=run["session_id"])
    await finished(client, again["id"])
    after = (await messages(client, run["session_id"]))[-1]
    assert after["usage"]["server_tool_use"]["web_search_requests"] == 0
    assert after["modelUsage"]["claude-haiku-4-5"]["webSearchRequests"] == 3


@pytest.mark.requirement("web:permission")
async def test_reaching_out_needs_an_approval_though_it_only_reads(wired: Wired) -> None:
    client = wired.host.client
    script = scripted([wired.fetch("x"), search(USE, FOUND)], {"text": "done"})
    run = await finished(client, (await start(client, script))["id"])
    shown = await messages(client, run["session_id"])
    denied = [message for message in shown if message.get("subtype") == "permission_denied"]
    assert sorted(message["tool_name"] for message in denied) == ["WebFetch", "WebSearch"]
    assert (wired.site.connections, await wired.ledger(run)) == (0, [])


async def test_a_provider_without_search_is_told_and_a_page_out_of_reach_too(wired: Wired) -> None:
    client = wired.host.client
    refusing = {
        "http": 400,
        "error": "invalid_request_error",
        "message": "no such tool: web_search",
    }
    away = {"tool": "WebFetch", "input": {"url": "https://127.0.0.1:1/", "prompt": "x"}}
    script = scripted(
        {"tool": "WebSearch", "input": {"query": scripted(refusing, text="cats")}},
        search({"type": "text", "text": "I know cats."}),
        away,
        {"text": "done"},
    )
    run = await finished(client, (await start(client, script, **WEB))["id"])
    refused, without, unreached = results_of(await messages(client, run["session_id"]))
    assert "no such tool: web_search" in refused
    assert "offers no web search" in without
    assert "not fetched" in unreached


async def test_what_a_cancelled_fetch_had_asked_is_paid_for(wired: Wired) -> None:
    client = wired.host.client
    stalled = scripted({"text": "never", "stall": 2}, text="And?")
    run = await start(client, scripted(wired.fetch(stalled), {"text": "done"}), **WEB)

    async def asked() -> bool:
        return len(wired.api.requests) == 2

    await until(asked)
    await asyncio.sleep(0.1)  # its first events are on their way: nothing says when they are in
    await client.post(f"/v1/runs/{run['id']}/cancel", json={})
    ended = await finished(client, run["id"])
    (row,) = await wired.ledger(run)
    assert (row["purpose"], row["is_estimated"], row["cost_usd"] > 0) == ("tool", True, True)
    assert ended["end_reason"] == "cancelled"
