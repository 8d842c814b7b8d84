import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.rooms import Rooms


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def rooms() -> Iterator[Rooms]:
    # Not pytest's tmp_path: the sandbox's user must be able to enter it.
    folder = Path(tempfile.mkdtemp(prefix="treadle-sandbox-"))
    folder.chmod(0o755)
    yield Rooms(folder)
    shutil.rmtree(folder)
