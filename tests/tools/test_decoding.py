"""Images and documents: what Read shows of them, and hostile ones."""

import asyncio
import base64
import contextlib
import io
import os
import struct
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from app.domain.tools import ToolResult
from app.errors import ToolFailed
from app.tools.decoder import Decoder
from tests.sandbox.rooms import processes
from tests.tools.desk import Desk, blocks_of, text_of
from tests.tools.test_walls_of_files import resident_bytes

pytestmark = pytest.mark.platform


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def shown(result: ToolResult, block: int = 0) -> Image.Image:
    """The image that the model sees."""
    source = blocks_of(result)[block]["source"]
    image = Image.open(io.BytesIO(base64.b64decode(source["data"])))
    assert source["media_type"] == f"image/{str(image.format).lower()}"
    return image


def png_header(width: int, height: int) -> bytes:
    """The start of a PNG that claims a size and holds next to nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows)


# -- images -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_an_image_that_fits_is_shown_as_it_is(kind: str, desk: Desk) -> None:
    data = saved(Image.new("RGB", (2000, 10), "red"), kind)
    desk.put("i.png", data)
    result = await desk.call("Read", file_path="i.png")
    (block,) = blocks_of(result)
    assert base64.b64decode(block["source"]["data"]) == data
    assert block["source"]["media_type"] == f"image/{kind.lower()}"
    assert result.structured["file"]["originalSize"] == len(data)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_a_large_image_is_scaled_and_keeps_its_ratio(kind: str, desk: Desk) -> None:
    data = saved(Image.new("RGB", (4000, 1000), "red"), kind)
    desk.put("i.png", data)
    result = await desk.call("Read", file_path="i.png")
    image = shown(result)
    assert image.size == (2000, 500)
    red, *others = image.convert("RGB").tobytes()[:3]
    assert red > 250
    assert max(others) < 5
    assert result.structured["file"]["dimensions"] == {
        "originalWidth": 4000,
        "originalHeight": 1000,
        "displayWidth": 2000,
        "displayHeight": 500,
    }


async def test_a_large_photo_is_turned_as_its_camera_says(desk: Desk) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    desk.put("i.jpg", saved(Image.new("RGB", (4000, 1000)), "JPEG", exif=exif))
    assert shown(await desk.call("Read", file_path="i.jpg")).size == (500, 2000)


async def test_what_is_see_through_stays_so(desk: Desk) -> None:
    desk.put("i.png", saved(Image.new("RGBA", (3000, 3000), (0, 0, 0, 0)), "PNG"))
    assert shown(await desk.call("Read", file_path="i.png")).getpixel((5, 5)) == (0, 0, 0, 0)


async def test_an_image_of_many_bytes_is_made_to_fit_the_model(desk: Desk) -> None:
    noise = Image.effect_noise((2000, 2000), 200).convert("RGB")
    desk.put("i.png", saved(noise, "PNG"))
    result = await desk.call("Read", file_path="i.png")
    assert shown(result).format == "JPEG"
    assert len(blocks_of(result)[0]["source"]["data"]) < 5_000_000


HOSTILE_IMAGES: dict[str, bytes] = {
    "more pixels than there is memory": png_header(50_000, 50_000),
    "at most 80000000 are decoded": png_header(20_000, 20_000),
    "damaged": png_header(300, 300),
    "not an image of a known kind": b"\x89PNG\r\n\x1a\n" + b"\0" * 100,
    "starts with the bytes": b"BM" + b"\0" * 100,
    "is damaged": saved(Image.effect_noise((300, 300), 50), "JPEG")[:2000],
}


@pytest.mark.parametrize("words", HOSTILE_IMAGES)
async def test_a_hostile_image_is_refused_in_words(words: str, desk: Desk) -> None:
    desk.put("i.png", HOSTILE_IMAGES[words])
    result = await desk.call("Read", file_path="i.png")
    assert result.is_error
    expected = "pixels" if words.startswith("more pixels") else words
    assert expected in text_of(result)


async def test_a_bomb_of_pixels_takes_no_memory_here_and_does_not_block_others(desk: Desk) -> None:
    bomb = saved(Image.new("L", (8900, 8900)), "PNG")
    assert len(bomb) < 200_000
    desk.put("i.png", bomb)
    before, lags = resident_bytes(), await lags_during(desk.call("Read", file_path="i.png"))
    assert max(lags) < 0.5
    assert resident_bytes() - before < 50 * 1024 * 1024


async def lags_during(work: Awaitable[ToolResult]) -> list[float]:
    """Do the work, and give how late a timer beside it was, each time."""
    lags: list[float] = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            lags.append(time.monotonic() - before - 0.01)

    ticking = asyncio.create_task(tick())
    result = await work
    assert not result.is_error, result.content
    ticking.cancel()
    await asyncio.wait([ticking])
    return lags


# -- documents ----------------------------------------------------------------------------------


def pdf(pages: int, *, width: float = 200, height: float = 100) -> bytes:
    """A document with a word on each page, in a font that is not in it."""
    words = b"BT /F1 40 Tf 20 30 Td (Hello) Tj ET"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%s] >>"
        % (pages, b" ".join(b"%d 0 R" % (n + 5) for n in range(pages))),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(words), words),
        *[
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Contents 4 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % (width, height)
        ]
        * pages,
    ]
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return (
        out
        + b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\n"
        % (
            len(objects) + 1,
            table,
            len(objects) + 1,
        )
        + b"startxref\n%d\n%%%%EOF" % len(out)
    )


async def test_a_document_is_shown_whole(desk: Desk) -> None:
    data = pdf(3)
    desk.put("d.pdf", data)
    result = await desk.call("Read", file_path="d.pdf", offset=5)
    text, document = blocks_of(result)
    assert "3 page(s)" in text["text"]
    assert document["source"]["media_type"] == "application/pdf"
    assert base64.b64decode(document["source"]["data"]) == data
    assert result.structured == {
        "type": "pdf",
        "file": {
            "filePath": "d.pdf",
            "base64": document["source"]["data"],
            "originalSize": len(data),
        },
    }


@pytest.mark.parametrize(("pages", "count"), [("2", 1), ("2-4", 3), (" 1 - 20 ", 20)])
async def test_pages_are_shown_as_images(pages: str, count: int, desk: Desk) -> None:
    desk.put("d.pdf", pdf(25))
    result = await desk.call("Read", file_path="d.pdf", pages=pages)
    text, *images = blocks_of(result)
    assert "of 25" in text["text"]
    assert len(images) == count
    page = shown(result, 1)
    assert page.size == (1500, 750)
    shades = set(page.convert("L").tobytes())
    assert min(shades) < 50, "the word must be seen"
    assert max(shades) == 255
    assert result.structured["file"]["count"] == count


@pytest.mark.parametrize(
    "pages", ["", "0", "3-2", "a", "1,2", "1-21", "-1", "1-", "1-2-3", "9" * 9]
)
async def test_pages_that_are_none_are_refused_before_the_document_is_read(
    pages: str, desk: Desk
) -> None:
    desk.put("d.pdf", pdf(1))
    result = await desk.call("Read", file_path="d.pdf", pages=pages)
    assert text_of(result).startswith("<tool_use_error>The parameter `pages`")


async def test_pages_are_ignored_for_other_files(desk: Desk) -> None:
    desk.put("a.txt", "x")
    assert text_of(await desk.call("Read", file_path="a.txt", pages="z")) == "1\tx"


def encrypted() -> bytes:
    return pdf(1).replace(
        b"/Root 1 0 R",
        b"/Root 1 0 R /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 "
        b"/O (" + b"x" * 32 + b") /U (" + b"y" * 32 + b") >> /ID [<00> <00>]",
    )


HOSTILE_DOCUMENTS: dict[str, Callable[[], bytes]] = {
    "does not start with %PDF-": lambda: b"nope",
    "cannot be opened": lambda: b"%PDF-1.7\n" + b"\0" * 1000,
    "(": encrypted,
    "at most 100": lambda: pdf(101),
}


@pytest.mark.parametrize("words", HOSTILE_DOCUMENTS)
async def test_a_hostile_document_is_refused_in_words(words: str, desk: Desk) -> None:
    desk.put("d.pdf", HOSTILE_DOCUMENTS[words]())
    result = await desk.call("Read", file_path="d.pdf")
    assert result.is_error
    assert words in text_of(result)
    assert "internal error" not in text_of(result)


async def test_a_page_that_is_not_there_is_told(desk: Desk) -> None:
    desk.put("d.pdf", pdf(2))
    assert "has 2 page(s)" in text_of(await desk.call("Read", file_path="d.pdf", pages="2-3"))


async def test_a_page_of_any_claimed_size_is_shown_small(desk: Desk) -> None:
    desk.put("d.pdf", pdf(1, width=1, height=14_000))
    assert max(shown(await desk.call("Read", file_path="d.pdf", pages="1"), 1).size) == 1500


# -- the child ----------------------------------------------------------------------------------


def children() -> list[int]:
    """The decoders that this process has begun: other tests run theirs at the same time."""
    found = ((pid, list(_above(pid))) for pid in processes("app.tools.decoding"))
    return [pid for pid, above in found if os.getpid() in above or above[:1] == [1]]


def _above(pid: int) -> Iterator[int]:
    """A process's parent, that one's parent, and so on."""
    with contextlib.suppress(OSError):  # it has ended
        while pid := int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]):
            yield pid


async def test_a_child_that_takes_too_long_is_ended(desk: Desk) -> None:
    desk.put("i.png", saved(Image.new("L", (8000, 8000)), "PNG"))
    with (
        desk.workspace.open("/workspace/i.png") as file,
        pytest.raises(ToolFailed, match="too long"),
    ):
        await Decoder(wall_s=0.01).image(file)
    assert not children()


async def test_a_cancelled_read_leaves_no_child(desk: Desk) -> None:
    desk.put("i.png", saved(Image.new("L", (8900, 8900)), "PNG"))
    reading = asyncio.create_task(desk.call("Read", file_path="i.png"))
    async with asyncio.timeout(10):
        while not children():  # noqa: ASYNC110 - it tells no event
            await asyncio.sleep(0.005)
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()
    assert not children()


async def test_many_reads_at_once_all_end(desk: Desk) -> None:
    desk.put("i.png", saved(Image.new("L", (300, 300)), "PNG"))
    decoder = Decoder()

    async def read() -> int:
        with desk.workspace.open("/workspace/i.png") as file:
            return (await decoder.image(file))["pictures"][0]["width"]

    assert await asyncio.gather(*[read() for _ in range(6)]) == [300] * 6
