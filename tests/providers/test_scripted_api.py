"""The scripted Messages API: its script form, and the program. Its faults: `contracts/model`."""

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

import httpx
import orjson
import pytest

from app.domain.blocks import TextBlock
from app.domain.model import ContextMessage, ModelRequest
from app.providers.anthropic import AnthropicModel
from app.providers.pool import model_transport
from app.providers.script import ScriptError, Step, parse_script, scripted_step
from tests.contracts.model import failure, outcome
from tests.fakes.messages_api import MessagesApi
from tests.providers.requests import asking, scripted


def says(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def answers(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def text_of(step: Step | None) -> object:
    return step.blocks[0]["text"] if step else None


def test_the_step_is_counted_from_the_newest_message_with_a_script() -> None:
    first = says('A <<script [{"text": "a0"}, {"text": "a1"}] >>')
    second = says('B <<script [{"text": "b0"}] >>')
    plain = says("go on")
    assert text_of(scripted_step([plain])) is None
    assert text_of(scripted_step([first])) == "a0"
    assert text_of(scripted_step([first, answers("a0"), plain])) == "a1"
    assert text_of(scripted_step([first, answers("a0"), plain, answers("a1"), plain])) == (
        "end of script"
    )
    assert text_of(scripted_step([first, answers("a0"), second])) == "b0"


def test_scripts_in_tool_results_reminders_and_answers_are_not_read() -> None:
    script = '<<script [{"text": "no"}] >>'
    result = {"type": "tool_result", "tool_use_id": "t", "content": script}
    assert scripted_step([{"role": "user", "content": [result]}]) is None
    assert scripted_step([says(f"<system-reminder>{script}</system-reminder>")]) is None
    assert scripted_step([answers(script), says("x")]) is None


def test_a_script_inside_a_string_of_a_script_belongs_to_it() -> None:
    inner = 'Child. <<script [{"text": "child"}] >>'
    outer = json.dumps([{"tool": "Agent", "input": {"prompt": inner}}, {"text": "parent"}])
    steps = parse_script(f"Go. <<script {outer} >>")
    assert steps is not None
    assert [list(step.blocks) for step in steps] == [
        [{"tool": "Agent", "input": {"prompt": inner}}],
        [{"text": "parent"}],
    ]


def test_a_step_is_a_block_a_list_or_an_object_with_controls() -> None:
    steps = parse_script(
        '<<script [{"text": "a", "cut": 2}, [{"text": "b"}, {"thinking": "c"}], '
        '{"blocks": [], "usage": {"input_tokens": 1}}, {"http": 500}] >>'
    )
    assert steps == (
        Step(blocks=({"text": "a"},), cut=2),
        Step(blocks=({"text": "b"}, {"thinking": "c"})),
        Step(usage={"input_tokens": 1}),
        Step(http=500),
    )


@pytest.mark.parametrize(
    "script", ['"x"', "[", '["x"]', '[{"txt": "a"}]', '[{"blocks": [{"input": {}}]}]', "[[1]]"]
)
def test_a_script_that_makes_no_sense_is_an_error(script: str) -> None:
    with pytest.raises(ScriptError):
        parse_script(f"<<script {script} >>")


async def test_only_so_many_tries_and_only_one_model_misbehave() -> None:
    async with MessagesApi() as api, model_transport() as transport:
        model = AnthropicModel(transport=transport, base_url=api.base_url)
        twice = scripted({"http": 529, "times": 2, "blocks": [{"text": "fine"}]})
        statuses = [(await failure(model, twice)).status for _ in range(2)]
        _, third = await outcome(model, twice)
        step = {"http": 404, "only_model": "a", "blocks": [{"text": "from b"}]}
        missing = await failure(model, scripted(step, model="a"))
        _, other = await outcome(model, scripted(step, model="b"))
    assert statuses == [529, 529]
    assert third.blocks == (TextBlock(text="fine"),)
    assert missing.status == 404
    assert other.blocks == (TextBlock(text="from b"),)


async def test_without_a_script_it_says_ok_and_past_its_end_that_it_ended() -> None:
    async with MessagesApi() as api, model_transport() as transport:
        model = AnthropicModel(transport=transport, base_url=api.base_url)
        _, plain = await outcome(model, asking("hello"))
        first = scripted({"text": "one"})
        again = ModelRequest(
            "m",
            10,
            (),
            (),
            (
                *first.messages,
                ContextMessage("assistant", (b'{"type":"text","text":"one"}',)),
                *asking("more").messages,
            ),
        )
        _, past = await outcome(model, again)
        bad = await failure(model, asking("<<script nonsense >>"))
    assert plain.blocks == (TextBlock(text="ok"),)
    assert past.blocks == (TextBlock(text="end of script"),)
    assert bad.status == 400


async def test_a_compaction_request_is_answered_whatever_the_script_says() -> None:
    summaries = [("Summarise the conversation", Step(blocks=({"text": "All was well."},)))]
    async with MessagesApi(summaries=summaries) as api, model_transport() as transport:
        model = AnthropicModel(transport=transport, base_url=api.base_url)
        _, normal = await outcome(model, scripted({"text": "one"}))
        _, summary = await outcome(model, asking("Summarise the conversation, please."))
    assert normal.blocks == (TextBlock(text="one"),)
    assert summary.blocks == (TextBlock(text="All was well."),)


async def test_it_records_what_came_and_who_hung_up() -> None:
    async with MessagesApi(api_key="right") as api, model_transport() as transport:
        model = AnthropicModel(transport=transport, base_url=api.base_url, api_key="right")
        await outcome(model, asking("hello"))
        wrong = AnthropicModel(transport=transport, base_url=api.base_url, api_key="wrong")
        assert (await failure(wrong, asking("hello"))).status == 401
    first, second = api.requests
    assert first.body["messages"][0]["content"][0]["text"] == "hello"
    assert (first.status, second.status) == (200, 401)
    assert first.headers["x-api-key"] == "right"
    assert not first.disconnected
    assert first.ended is not None
    assert first.started <= first.ended
    assert api.bodies() == [first.body, {}]


async def test_the_program_serves_and_lists_its_requests() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fakes.messages_api", "--port", "0",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            base_url = json.loads(await process.stdout.readline())["base_url"]
        async with httpx.AsyncClient(base_url=base_url, trust_env=False) as client:
            body: Mapping[str, Any] = {"model": "m", "messages": [says("hello")]}
            answer = await client.post("/v1/messages", content=orjson.dumps(body))
            seen = (await client.get("/_requests")).json()
        assert answer.status_code == 200
        assert '"text":"ok"' in answer.text
        assert [each["body"] for each in seen] == [body]
    finally:
        process.terminate()
        status = await process.wait()
    assert status == 0
