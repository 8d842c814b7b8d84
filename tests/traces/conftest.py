import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import MakeSettings
from tests.fakes.messages_api import MessagesApi
from tests.hosts import host
from tests.traces.http_driver import HttpDriver
from tests.traces.stand_ins import StandIns


@pytest.fixture
def workspaces(scratch: Path) -> Path:
    """A folder for workspaces, which the sandbox's user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="ws-", dir=scratch))
    folder.chmod(0o755)
    return folder


@pytest.fixture
async def driver(
    make_settings: MakeSettings, messages_api: MessagesApi, workspaces: Path
) -> AsyncIterator[HttpDriver]:
    """A host with the stand-in tools."""
    settings = make_settings(workspace={"allowed_roots": [workspaces]})
    uid = settings.workspace.sandbox_uid if os.geteuid() == 0 else None
    stand_ins = StandIns()
    async with host(settings, extra_tools=stand_ins.tools()) as running:
        yield HttpDriver(running.client, messages_api, stand_ins, workspaces, uid)
