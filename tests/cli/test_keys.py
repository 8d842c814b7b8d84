import json

import pytest

from app.hooks.signing import tenant_secret
from tests.cli.conftest import Finished, Run
from tests.hosts import Host, client_for


@pytest.fixture
def keys(bare: Run, database_url: str) -> Run:
    async def run(*arguments: str) -> Finished:
        environment = {"DATABASE_URL": database_url}
        return await bare("keys", *arguments, environment=environment)

    return run


async def test_a_key_is_printed_alone_so_that_a_shell_can_take_it(keys: Run) -> None:
    done = await keys("create", "--name", "me")
    assert done.status == 0, done.err
    assert done.out.startswith("trd_")
    assert done.out.count("\n") == 1
    assert "not shown again" in done.err


async def test_a_key_as_json_is_one_object_and_opens_the_door(keys: Run, service: Host) -> None:
    done = await keys("create", "--name", 'an "odd" name', "--json")
    made = json.loads(done.out)
    assert sorted(made) == ["id", "key", "name", "tenant"]
    assert made["name"] == 'an "odd" name'
    async with client_for(service.base_url) as client:
        headers = {"x-api-key": made["key"]}
        assert (await client.get("/v1/meta", headers=headers)).status_code == 200


async def test_a_key_without_a_name_is_not_made(keys: Run) -> None:
    for name in ("", " "):
        done = await keys("create", "--name", name)
        assert (done.status, done.out) == (2, "")
        assert "--name" in done.err


async def test_listed_keys_show_no_secret_and_revoked_ones_say_when(keys: Run) -> None:
    made = json.loads((await keys("create", "--name", "one", "--json")).out)
    assert (await keys("revoke", made["id"])).status == 0
    assert (await keys("revoke", made["id"])).status == 0
    listed = await keys("list", "--json")
    (shown,) = [key for key in json.loads(listed.out) if key["id"] == made["id"]]
    assert shown["revoked_at"]
    assert made["key"] not in listed.out
    assert made["id"] in (await keys("list")).out


async def test_a_revoked_key_opens_nothing(keys: Run, service: Host) -> None:
    made = json.loads((await keys("create", "--name", "one", "--json")).out)
    await keys("revoke", made["id"])
    async with client_for(service.base_url) as client:
        headers = {"x-api-key": made["key"]}
        assert (await client.get("/v1/meta", headers=headers)).status_code == 401


async def test_revoking_what_is_no_key_says_so(keys: Run) -> None:
    done = await keys("revoke", "key_none")
    assert done.status == 2
    assert "treadle keys list" in done.err


async def test_the_secret_of_hooks_is_printed_alone_or_it_is_said_how_to_have_one(
    bare: Run,
) -> None:
    done = await bare("keys", "hook-secret", environment={"TREADLE_HOOKS__SECRET": "s" * 32})
    assert done.out == tenant_secret("s" * 32, "default") + "\n"
    missing = await bare("keys", "hook-secret")
    assert missing.status == 2
    assert "TREADLE_HOOKS__SECRET" in missing.err


async def test_a_policy_is_set_whole_shown_and_checked(bare: Run, database_url: str) -> None:
    async def policy(*arguments: str) -> Finished:
        return await bare("policy", *arguments, environment={"DATABASE_URL": database_url})

    wrong = await policy("set", "--deny", "Bash(rm")
    assert wrong.status == 2
    assert "'Bash(rm' is no rule" in wrong.err
    set_all = ("--deny", "Bash(rm *)", "--ask", "Write", "--forbid-mode", "dontAsk")
    assert (await policy("set", *set_all)).status == 0
    shown = json.loads((await policy("show", "--json")).out)
    assert shown == {"forbidden_modes": ["dontAsk"], "deny": ["Bash(rm *)"], "ask": ["Write"]}
    assert (await policy("set")).status == 0
    assert "deny: -" in (await policy("show")).out
