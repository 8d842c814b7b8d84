"""Answers of a model that are large, many, odd or missing, against a real host."""

import re
from decimal import Decimal
from typing import Any

import pytest

from tests.conftest import MakeSettings
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, host
from tests.runs.prompts import finished, messages, scripted, start
from tests.traces.stand_ins import StandIns

FAST = {"retry_first_delay_s": 0.01, "retry_longest_asked_delay_s": 0.05}


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Blocks of a kind, in the order of the transcript."""
    contents = [m["message"]["content"] for m in found if m["type"] in {"assistant", "user"}]
    return [
        b for blocks in contents if isinstance(blocks, list) for b in blocks if b["type"] == kind
    ]


# -- large and many ---------------------------------------------------------------------------


@pytest.mark.requirement("loop:bounded-parallelism")
async def test_a_thousand_calls_in_one_response_have_a_result_each(
    make_settings: MakeSettings, messages_api: MessagesApi
) -> None:
    stand_ins = StandIns()
    calls = [{"tool": "mcp__m__ro", "input": {"s": 0, "n": str(n)}} for n in range(1_000)]
    async with host(make_settings(), extra_tools=stand_ins.tools()) as service:
        prompt = scripted({"blocks": calls}, {"text": "done"})
        run = await start(service.client, prompt, allowed_tools=["mcp__m__ro"])
        await finished(service.client, run["id"])
        result = (await service.client.get(f"/v1/runs/{run['id']}/result")).json()
    assert (result["result"], result["num_turns"]) == ("done", 2)
    assert len(stand_ins.events) == 2_000
    asked, told = messages_api.bodies()[-1]["messages"][-2:]
    ids = [block["id"] for block in asked["content"]]
    assert len(set(ids)) == 1_000
    assert [block["tool_use_id"] for block in told["content"]] == ids


@pytest.mark.requirement("loop:large-response")
async def test_a_response_of_20_megabytes_is_kept_whole_and_the_session_goes_on(
    service: Host, messages_api: MessagesApi
) -> None:
    size = 20 * 1024 * 1024
    run = await start(service.client, scripted({"deltas": 80, "delta_chars": size // 80}))
    assert (await finished(service.client, run["id"]))["result_subtype"] == "success"
    result = (await service.client.get(f"/v1/runs/{run['id']}/result")).json()
    assert len(result["result"]) == size
    again = await start(service.client, "And now?", session_id=run["session_id"])
    assert (await finished(service.client, again["id"]))["result_subtype"] == "success"
    [_, said, _] = messages_api.bodies()[-1]["messages"]
    assert len(said["content"][0]["text"]) == size


@pytest.mark.requirement("loop:odd-names")
async def test_calls_by_odd_names_and_one_id_are_answered_and_the_next_request_is_valid(
    service: Host, messages_api: MessagesApi
) -> None:
    names = ["../../x", "", "n" * 10_000, "Bash\x00", "BASH", "\ud800", "Вash"]
    calls = [{"tool": name, "input": {}, "id": "same"} for name in names]
    run = await start(service.client, scripted({"blocks": calls}, {"text": "done"}))
    assert (await finished(service.client, run["id"]))["result_subtype"] == "success"
    results = of_kind(await messages(service.client, run["session_id"]), "tool_result")
    assert [block["is_error"] for block in results] == [True] * len(names)
    asked, told = messages_api.bodies()[-1]["messages"][-2:]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", block["name"]) for block in asked["content"])
    ids = [block["id"] for block in asked["content"]]
    assert len(set(ids)) == len(names)
    assert [block["tool_use_id"] for block in told["content"]] == ids


# -- missing ----------------------------------------------------------------------------------


@pytest.mark.requirement("field:P45")
async def test_an_overloaded_model_is_asked_again_and_a_run_that_gave_up_can_be_gone_on_with(
    make_settings: MakeSettings, messages_api: MessagesApi
) -> None:
    async with host(make_settings(model={**FAST, "max_retries": 3})) as service:
        steps = (
            {"http": 529, "error": "overloaded_error", "times": 2, "tool": "Glob"}
            | {"input": {"pattern": "*"}},
            {"http": 429, "error": "rate_limit_error", "retry_after": 3, "times": 1, "text": "ok"},
        )
        first = await start(service.client, scripted(*steps))
        assert (await finished(service.client, first["id"]))["result_subtype"] == "success"
        found = await messages(service.client, first["session_id"])
        told = [m for m in found if m.get("subtype") == "api_retry"]
        assert [(m["attempt"], m["error_status"], m["error"]) for m in told] == [
            (1, 529, "overloaded"),
            (2, 529, "overloaded"),
            (1, 429, "rate_limit"),
        ]
        assert all(0 < m["retry_delay_ms"] <= 63 for m in told)
        session = first["session_id"]
        second = await start(service.client, scripted({"http": 529}), session_id=session)
        ended = await finished(service.client, second["id"])
        assert (ended["result_subtype"], ended["end_reason"]) == (
            "error_during_execution",
            "model_error",
        )
        result = (await service.client.get(f"/v1/runs/{second['id']}/result")).json()
        assert (result["api_error_status"], result["terminal_reason"]) == (529, "api_error")
        third = await start(service.client, scripted({"text": "ok"}), session_id=session)
        assert (await finished(service.client, third["id"]))["result_subtype"] == "success"
        roles = [message["role"] for message in messages_api.bodies()[-1]["messages"]]
        assert roles == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.requirement("field:P10")
async def test_costs_of_runs_add_up_to_their_sessions_over_a_restart_and_lost_tries(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings(model=FAST)
    usage = {"input_tokens": 1_000, "output_tokens": 100}
    runs: list[dict[str, Any]] = []

    async def play(service: Host, step: dict[str, Any]) -> None:
        session_id = runs[0]["session_id"] if runs else None
        prompt = scripted({"text": "x" * 40, "usage": usage, **step})
        run = await start(service.client, prompt, session_id=session_id)
        runs.append(await finished(service.client, run["id"]))

    async with host(settings) as service:
        await play(service, {})
        await play(service, {"cut": 3, "times": 1})
    async with host(settings) as service:
        await play(service, {})
        session = (await service.client.get(f"/v1/sessions/{runs[0]['session_id']}")).json()
        result = (await service.client.get(f"/v1/runs/{runs[2]['id']}/result")).json()
    costs = [Decimal(run["cost"]["run_usd"]) for run in runs]
    assert costs == [Decimal("0.003"), Decimal("0.0051"), Decimal("0.003")]
    assert sum(costs) == Decimal(session["cost"]["session_usd"])
    assert result["total_cost_usd"] == pytest.approx(float(sum(costs)))
