import pytest

from app.cli.client import Client, Frame, address, frames
from app.cli.failure import CliFailure

STREAM = (
    "retry: 2000\n: stream open\n\n"
    'id: 1\nevent: message\ndata: {"text":"line \u2028 separator \x85 next"}\n\n'
    ": hb\n\n"
    'event: preview\ndata: {"a":1}\n\n'
    "id: 3\r\nevent: service\r\ndata: {}\r\n\r\n"
    "id: 4\nevent: message\ndata: {"
).encode()
FRAMES = [
    Frame("message", '{"text":"line \u2028 separator \x85 next"}', 1),
    Frame("preview", '{"a":1}', None),
    Frame("service", "{}", 3),
]


def test_frames_are_the_same_wherever_the_bytes_are_cut() -> None:
    for size in (1, 2, 3, 7, 64, len(STREAM)):
        chunks = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
        assert list(frames(chunks)) == FRAMES


def test_an_id_from_the_command_line_cannot_leave_its_path() -> None:
    assert address("runs", "../../healthz?x=1#y") == "/v1/runs/..%2F..%2Fhealthz%3Fx%3D1%23y"


@pytest.mark.parametrize("url", ["", "localhost:8700", "ftp://x", "http://", "http://x:99999"])
def test_an_address_that_is_none_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(CliFailure, match="such as http://"):
        Client(url, "key")


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "ключ"])
def test_a_key_that_cannot_be_sent_is_refused(key: str) -> None:
    with pytest.raises(CliFailure, match="copy it anew"):
        Client("http://127.0.0.1:8700", key)
