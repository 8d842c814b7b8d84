"""What a host pays for servers that no run has: nothing."""

import subprocess
import sys

import pytest

LOADED = """
import sys
import app.main
print([name for name in ("mcp", "mcp_types", "jwt", "cryptography") if name in sys.modules])
"""


@pytest.mark.requirement("mcp:lazy")
def test_a_host_that_has_no_server_does_not_import_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
