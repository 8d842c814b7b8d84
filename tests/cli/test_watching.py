"""Against a server on loopback that ends its streams in every way there is."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import pytest

from app.cli.client import Client
from app.cli.failure import Away, CliFailure
from app.cli.watching import Watch

END = b'event: end\ndata: {"reason":"%s"}\n\n'


def frame(seq: int) -> bytes:
    return b'id: %d\nevent: message\ndata: {"n":%d}\n\n' % (seq, seq)


@contextmanager
def streams(*answers: bytes | int) -> Iterator[tuple[str, list[str | None]]]:
    """Serve one answer a request, the last one again and again; give address and cursors seen."""
    cursors: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers[min(len(cursors), len(answers) - 1)]
            cursors.append(self.headers.get("Last-Event-ID"))
            self.send_response(answer if isinstance(answer, int) else 200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            if isinstance(answer, bytes):
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", cursors
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def watched(url: str, said: list[str], patience_s: float = 60) -> Sequence[int | None]:
    with Client(url, "key") as client:
        watch = Watch(client, "/v1/runs/run_1/stream", said.append, patience_s=patience_s)
        return [one.id for one in watch.frames()]


def test_a_stream_that_breaks_goes_on_behind_the_last_frame_with_nothing_twice() -> None:
    cut_in_a_frame = frame(2) + frame(3)[:-3]
    answers = (frame(1), cut_in_a_frame, frame(3) + END % b"run_finished")
    said: list[str] = []
    with streams(*answers) as (url, cursors):
        assert watched(url, said) == [1, 2, 3]
    assert cursors == [None, "1", "2"]
    assert len(said) == 2


def test_a_server_that_shuts_down_is_followed_to_its_successor() -> None:
    answers = (frame(1) + END % b"server_shutdown", frame(2) + END % b"run_finished")
    with streams(*answers) as (url, cursors):
        assert watched(url, []) == [1, 2]
    assert cursors == [None, "1"]


def test_a_stream_that_was_read_to_its_end_is_over() -> None:
    with streams(frame(1), 204) as (url, _):
        assert watched(url, []) == [1]


def test_previews_have_no_place_in_the_log_and_do_not_move_the_cursor() -> None:
    preview = b'event: preview\ndata: {"type":"stream_event"}\n\n'
    with streams(frame(7) + preview, END % b"run_finished") as (url, cursors):
        assert watched(url, []) == [7, None]
    assert cursors == [None, "7"]


def test_an_outage_longer_than_the_patience_ends_the_reading() -> None:
    said: list[str] = []
    with (
        streams(503) as (url, cursors),
        pytest.raises(Away, match="answered 503"),
    ):
        watched(url, said, patience_s=0.5)
    assert len(said) == 1
    assert len(cursors) >= 2


def test_a_refusal_is_final() -> None:
    with streams(404) as (url, cursors), pytest.raises(CliFailure, match="not as a Treadle"):
        watched(url, [])
    assert len(cursors) == 1


@pytest.mark.parametrize(("status", "kind", "tries"), [(410, CliFailure, 1), (503, Away, 2)])
def test_a_problem_inside_a_stream_is_told_and_only_passing_ones_are_waited_out(
    status: int, kind: type[CliFailure], tries: int
) -> None:
    problem = b'event: problem\ndata: {"code":"gone","status":%d,"detail":"Gone."}\n\n' % status
    with streams(problem) as (url, cursors), pytest.raises(kind, match="Gone"):
        watched(url, [], patience_s=0.1)
    assert len(cursors) >= tries


def test_cursors_only_grow() -> None:
    answers = [frame(seq) for seq in range(1, 6)] + [END % b"run_finished"]
    with streams(*answers) as (url, cursors):
        assert watched(url, []) == [1, 2, 3, 4, 5]
    numbers = [int(cursor or 0) for cursor in cursors]
    assert all(a < b for a, b in pairwise(numbers))
