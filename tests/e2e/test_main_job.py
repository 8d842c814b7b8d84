"""A prompt in, a live stream out, a session that goes on."""

from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host
from tests.runs.prompts import bash, scripted


async def test_a_prompt_gives_init_blocks_results_and_one_result(
    service: Host, messages_api: MessagesApi
) -> None:
    prompt = scripted(bash("echo hi"), {"text": "done"})
    started = await service.client.post(
        "/v1/runs",
        json={"prompt": prompt, "options": {"allowed_tools": ["Bash"]}, "wait": 30},
    )
    assert started.status_code == 200, started.text
    run = started.json()["run"]
    assert (run["status"], run["result_subtype"], run["num_turns"]) == ("finished", "success", 2)
    page = (await service.client.get(f"/v1/sessions/{run['session_id']}/messages")).json()
    kinds = [(m["type"], m.get("subtype")) for m in page["data"]]
    assert kinds == [
        ("system", "init"),
        ("user", None),
        ("assistant", None),
        ("user", None),
        ("assistant", None),
        ("result", "success"),
    ]
    assert page["data"][3]["message"]["content"][0]["content"] == "hi"
    assert len(messages_api.requests) == 2
