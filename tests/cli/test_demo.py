import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def test_the_demo_shows_an_agent_at_work_and_leaves_nothing_behind() -> None:
    before = set(Path("/tmp").glob("td-*"))
    done = subprocess.run(
        [sys.executable, "scripts/demo.py"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("● Glob", "● Read", "● Write", "curl", "All checks passed"):
        assert part in done.stdout
    assert done.stdout.count("success: ") == 2
    assert set(Path("/tmp").glob("td-*")) <= before
