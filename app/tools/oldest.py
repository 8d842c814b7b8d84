"""The files that were changed the longest ago, out of very many.

ripgrep lists files with all cores, but sorts them by time with one, and prints them all. So it
lists them unsorted, `ls` sorts them in a few large parts side by side, each part gives its
oldest, and these are sorted once more. Only they leave the sandbox, with the count of all.
"""

from app.sandbox.driver import Sandbox
from app.tools.ripgrep import arguments, ripgrep, run_search

_PART_BYTES = 1_900_000
"""Of names for one `ls`; a command line may have 2 MiB."""

_SORT = """\
export LC_ALL=C most=$1 parts=/dev/shm/treadle-$$
shift
mkdir -m 700 "$parts" || exit 3
trap 'rm -rf "$parts"' EXIT
"$@" | xargs -0 -r -P "$(nproc)" -s PART_BYTES bash -c '
  printf "%d\\n" $# >>"$parts/counts"
  ls -dtr1 --zero -- "$@" 2>/dev/null | head -zn "$most" >"$parts/part-$$"' part
status=${PIPESTATUS[0]}
cat "$parts/counts" 2>/dev/null
printf '\\0'
set -- "$parts"/part-*
if (($# == 1)); then
  cat -- "$1" 2>/dev/null
else
  cat -- "$@" | xargs -0 -r -s PART_BYTES ls -dtr1 --zero -- | head -zn "$most"
fi
exit "$status"
""".replace("PART_BYTES", str(_PART_BYTES))


async def oldest_files(
    sandbox: Sandbox, pattern: str, most: int, *, cwd: str
) -> tuple[list[str], int]:
    """Give the names of at most `most` files beneath `cwd`, oldest first, and how many match.

    An empty pattern matches all. Raises `ToolFailed`, for a bad pattern in ripgrep's words.
    """
    options = ["--files", "--hidden", "--no-ignore", "--null"]
    if pattern:
        options.append(f"--glob={pattern}")
    argv = ["bash", "-c", _SORT, "oldest", str(most), *arguments(options)]
    found = await run_search(sandbox, argv, cwd=cwd)
    counts, _, names = found.output.decode(errors="replace").partition("\0")
    total = sum(map(int, counts.split()))
    if total and not names:  # an `ls` or `head` that does not end names with NUL (coreutils < 9)
        found = await ripgrep(sandbox, [*options, "--sort=modified"], cwd=cwd)
        names = found.output.decode(errors="replace")
    return names.split("\0")[:-1][:most], total
