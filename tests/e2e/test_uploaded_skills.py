"""A tenant's skills on hosts that share nothing but the database and the workspaces."""

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.conftest import MakeSettings
from tests.hosts import host
from tests.runs.prompts import finished, messages, scripted, start
from tests.tools.test_bundle import zipped

SKILL = "---\nallowed-tools: Bash(/skills/count/run.sh *)\n---\nRun it."


@pytest.mark.requirement("skill:grants")
@pytest.mark.requirement("skill:upload-folders")
async def test_another_host_has_a_loaded_skills_files_and_knows_what_it_allows(
    make_settings: MakeSettings, scratch: Path
) -> None:
    root, *data = (Path(tempfile.mkdtemp(prefix="s-", dir=scratch)) for _ in range(3))
    for folder in (root, *data):
        folder.chmod(0o755)
    (root / "a").mkdir(mode=0o755)
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(
                host(
                    make_settings(
                        data_dir=each, workspace={"allowed_roots": [root], "allow_root_owned": True}
                    )
                )
            )
            for each in data
        ]
        upload = zipped({"count/SKILL.md": SKILL, "count/run.sh": "#!/bin/sh\necho counted $1"})
        assert (await one.client.post("/v1/skills", content=upload)).status_code == 201
        place = {"workspace": {"source": "directory", "path": str(root / "a")}}
        session = (await two.client.post("/v1/sessions", json=place)).json()["id"]
        load = {"tool": "Skill", "input": {"skill": "count"}}
        run = {"tool": "Bash", "input": {"command": "/skills/count/run.sh it"}}
        first = await start(one.client, scripted(load, {"text": "1"}), session_id=session)
        await finished(one.client, first["id"])
        assert [len([*(each / "skills").iterdir()]) for each in data] == [1, 0]
        then = await start(two.client, scripted(run, {"text": "2"}, text="x"), session_id=session)
        assert (await finished(two.client, then["id"]))["end_reason"] == "completed"
        assert "counted it" in str(await messages(two.client, session))
        assert [len([*(each / "skills").iterdir()]) for each in data] == [1, 1]
