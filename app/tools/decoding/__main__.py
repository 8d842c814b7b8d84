"""`python -m app.tools.decoding REQUEST`: decode the file that is standard input."""

import json
import os
import sys

from app.sandbox.confine import confine
from app.tools.decoding.answer import Answer, Refused

_CPU_S = 20
_MEMORY_BYTES = 1536 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024


def main() -> None:
    """Answer the request; a refusal is an answer, all else a status that is not 0."""
    request = json.loads(sys.argv[1])
    # Libraries take a while to load: each job loads its own.
    match request["job"]:
        case "image":
            from app.tools.decoding import images  # noqa: PLC0415

            images.load_formats()
        case "page":
            from app.tools.decoding import pages  # noqa: PLC0415

            pages.load_page(request["charset"])
        case _:
            from app.tools.decoding import documents  # noqa: PLC0415
    confine(uid=request["uid"], memory_bytes=_MEMORY_BYTES, cpu_s=_CPU_S)
    data = _read(request["max_bytes"])
    try:
        match request["job"]:
            case "image":
                answer = images.show_image(data)
            case "page":
                answer = pages.show_page(
                    data, charset=request["charset"], is_html=request["is_html"]
                )
            case "document":
                answer = documents.show_document(data, request["max_pages"])
            case _:
                answer = documents.show_pages(data, request["first"], request["last"])
    except Refused as refused:
        answer = Answer(refused=str(refused))
    except MemoryError:
        answer = Answer(refused="it takes too much memory to decode")
    _write(answer)


def _read(limit_bytes: int) -> bytes:
    pieces: list[bytes] = []
    while limit_bytes > 0 and (piece := os.pread(0, _CHUNK_BYTES, sum(map(len, pieces)))):
        pieces.append(piece[:limit_bytes])
        limit_bytes -= len(piece)
    return b"".join(pieces)


def _write(answer: Answer) -> None:
    rest = memoryview(json.dumps(answer).encode())
    while rest:
        rest = rest[os.write(1, rest) :]
    os._exit(0)  # the clean-up of libraries would ask for what is forbidden


if __name__ == "__main__":
    main()
