"""Follow a run or a session from a terminal, and leave it without ending it."""

import json
import sys

from app.cli.asking import put
from app.cli.client import Client, JsonObject, address
from app.cli.failure import Away, Status
from app.cli.follow import Follower, JsonLines, Printer, status_of
from app.cli.plain import json_line
from app.cli.screen import out, print_line, say
from app.cli.watching import Watch


def follow_run(
    client: Client,
    run: JsonObject,
    *,
    after: int | None = None,
    as_json: bool,
    shows_prompts: bool = False,
) -> Status:
    """Print a run to its end; give the exit status by its result, or `DETACHED` after Ctrl-C."""
    run_id = str(run["id"])
    if run.get("queue_position"):
        say(f"The session is busy: {run['queue_position']} of its runs come before this one.")
    elif run.get("status") == "queued":
        say("The run is queued: it begins as soon as a host has room for it.")
    watch = _watch(client, address("runs", run_id, "stream"), after, as_json=as_json)
    follower = _follower(as_json=as_json, shows_prompts=shows_prompts)
    try:
        is_over = _follow(watch, follower, asks=not as_json)
    except Away as away:
        come_back = f"treadle tail {run_id}{_behind(watch)}"
        raise Away(
            f"{away.text}\nThe run does not need this reader. Come back: {come_back}"
        ) from None
    if not is_over:
        say(
            f"\nDetached; the run goes on.\nCome back: treadle tail {run_id}{_behind(watch)}\n"
            f"Cancel it: treadle runs cancel {run_id}",
            "yellow",
        )
        return Status.DETACHED
    if follower.result is not None:
        return status_of(follower.result)
    # The cursor was behind the result already.
    return Status.FAILED if client.get(address("runs", run_id))["is_error"] else Status.SUCCESS


def show_started(started: JsonObject, *, as_json: bool) -> None:
    """Print a run that is not followed: its id, or for programs all that was answered."""
    if as_json:
        print_line(json_line(json.dumps(started)))
        return
    print_line(started["run"]["id"])
    say(f"Follow it: treadle tail {started['run']['id']}")


def follow_session(client: Client, session_id: str, *, after: int | None, as_json: bool) -> Status:
    """Print a session, across its runs, until Ctrl-C."""
    watch = _watch(client, address("sessions", session_id, "stream"), after, as_json=as_json)
    if not _follow(watch, _follower(as_json=as_json, shows_prompts=True)):
        say(f"\nCome back: treadle tail {session_id}{_behind(watch)}", "yellow")
    return Status.DETACHED


def _watch(client: Client, path: str, after: int | None, *, as_json: bool) -> Watch:
    # Only somebody at a window sees text grow.
    previews = "all" if sys.stdout.isatty() and not as_json else "none"
    return Watch(client, path, lambda text: say(text, "yellow"), after=after, previews=previews)


def _follower(*, as_json: bool, shows_prompts: bool) -> Follower:
    return JsonLines() if as_json else Printer(out(), shows_prompts=shows_prompts)


def _follow(watch: Watch, follower: Follower, *, asks: bool = False) -> bool:
    """Print to the end, and put what is `asked` to the user; False when the user left before."""
    try:
        for frame in watch.frames():
            follower.take(frame)
            if asks:
                put(watch.client, frame)
    except KeyboardInterrupt:
        return False
    return True


def _behind(watch: Watch) -> str:
    return "" if watch.after is None else f" --after {watch.after}"
