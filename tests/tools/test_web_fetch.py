"""WebFetch: what is fetched, what the small model reads, and what the agent is told."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
import trustme

from app.domain.tools import ToolResult
from app.errors import ModelRejected
from app.sandbox.egress import EgressRules
from app.sandbox.guarded_http import Guard
from app.tools.pages import Pages
from app.tools.tool import Beyond
from tests.fakes.site import Site, answer
from tests.sandbox.test_guarded_http import REFUSED_ADDRESSES
from tests.tools.asked import Small
from tests.tools.desk import Desk, text_of

PAGE = b"""<html><head><title>Fish</title><style>a{}</style></head><body>
<nav><a href="/home">Home</a></nav><h1>Of fish</h1><p>They <b>swim</b>.</p>
<ul><li>cod</li></ul><pre>blub</pre><script>steal()</script></body></html>"""


@dataclass
class Web:
    """A site of two names, over TLS, as a session's WebFetch sees it."""

    site: Site
    desk: Desk
    pages: Pages
    small: Small = field(default_factory=Small)
    now_s: float = 0.0

    def url(self, path: str = "/", host: str = "ok.test") -> str:
        return f"https://{host}:{self.site.port}{path}"

    async def fetch(self, url: str, prompt: str = "What is it?", **given: object) -> ToolResult:
        return await self.desk.call("WebFetch", url=url, prompt=prompt, **given)

    def asked(self) -> str:
        return self.small.requests[-1].prompt


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, str]:
    made = trustme.CA()
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    made.cert_pem.write_to_path(str(path))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.issue_cert("ok.test", "other.test").configure_cert(tls)
    return tls, str(path)


async def looked_up(host: str) -> Sequence[str]:
    known = {"ok.test": "127.0.0.1", "other.test": "127.0.0.1", "inside.test": "10.0.0.1"}
    return [known[host]] if host in known else []


@pytest.fixture
async def web(desk: Desk, authority: tuple[ssl.SSLContext, str]) -> AsyncIterator[Web]:
    tls, ca_file = authority
    async with Site({"/": answer(PAGE, kind="text/html; charset=utf-8")}, tls) as site:
        rules = EgressRules(
            private_hosts=("ok.test", "other.test"),
            denied_hosts=("denied.test",),
            ports=frozenset({80, 443, site.port}),
        )
        guard = Guard(rules, resolve=looked_up, ca_file=ca_file)
        made = Web(site, desk, Pages(guard, clock=lambda: made.now_s))
        desk.beyond = Beyond(made.pages, made.small, "mine")
        yield made


async def test_a_page_is_read_as_markdown_and_the_question_answered(web: Web) -> None:
    result = await web.fetch(web.url(), "Which fish?")
    assert (text_of(result), result.is_error) == ("A fine page.", None)
    (request,) = web.small.requests
    head, page, tail = request.prompt.split("---\n", 2)
    assert (head, request.tools, request.purpose) == ("", (), "tool")
    assert page == (
        "Fish\n\n[Home](/home)\n\nOf fish\n=======\n\nThey **swim**.\n\n* cod\n\n<!-- -->\n\n    blub\n"
    )
    assert tail.startswith("\nWhich fish?\n\n")
    structured = result.structured
    assert structured == {
        "bytes": len(PAGE),
        "code": 200,
        "codeText": "Status",
        "result": "A fine page.",
        "durationMs": structured["durationMs"],
        "url": web.url(),
    }
    headers = web.site.asked[0].headers
    assert headers["accept"] == "text/markdown, text/html, */*"
    assert "cookie" not in headers


async def test_a_page_is_kept_for_a_quarter_of_an_hour_for_its_session_alone(web: Web) -> None:
    await web.fetch(web.url())
    await web.fetch(web.url("/#part"), "And else?")
    assert (len(web.site.asked), len(web.small.requests)) == (1, 2)
    web.desk.beyond = Beyond(web.pages, web.small, "another's")
    await web.fetch(web.url())
    assert len(web.site.asked) == 2
    web.now_s += 15 * 60 + 1
    await web.fetch(web.url())
    assert len(web.site.asked) == 3


async def test_calls_made_together_ask_for_a_page_once(web: Web) -> None:
    told = await asyncio.gather(*(web.fetch(web.url(), f"Question {n}") for n in range(6)))
    assert not any(each.is_error for each in told)
    assert (len(web.site.asked), len(web.small.requests)) == (1, 6)
    # What failed is tried again, by each of them.
    missing = [web.fetch(web.url("/missing")) for _ in range(3)]
    assert ["404" in text_of(each) for each in await asyncio.gather(*missing)] == [True] * 3
    assert len(web.site.asked) == 4


async def test_http_becomes_https_but_for_hosts_of_the_operator(web: Web) -> None:
    found = await web.fetch("http://public.test/x")
    assert "could not be reached" in text_of(found)
    address = web.pages._address
    assert str(address("http://public.test/x?y#z")) == "https://public.test/x?y"
    assert str(address("HTTP://Public.test:80/")) == "https://public.test/"
    assert str(address("http://public.test:8080/")) == "https://public.test:8080/"
    assert str(address("http://ok.test/")) == "http://ok.test/"


async def test_redirects_on_the_host_are_followed_and_another_host_is_told(web: Web) -> None:
    web.site.pages |= {
        "/a": answer(status=301, location="/"),
        "/away": answer(status=302, location=web.url("/x", "other.test")),
        "/loop": answer(status=302, location="/loop"),
        "/private": answer(status=302, location="https://inside.test/"),
    }
    assert text_of(await web.fetch(web.url("/a"))) == "A fine page."
    told = await web.fetch(web.url("/away"))
    assert told.is_error is None
    assert told.structured["code"] == 302
    for part in (web.url("/away"), web.url("/x", "other.test"), "302 Status"):
        assert part in text_of(told)
    assert len(web.small.requests) == 1, "a redirect is told without asking a model"
    looped = await web.fetch(web.url("/loop"))
    assert (looped.is_error, "redirects too often" in text_of(looped)) == (True, True)
    inside = await web.fetch("https://inside.test/")
    assert (inside.is_error, "not at a public address" in text_of(inside)) == (True, True)


async def test_an_error_of_the_server_is_told_and_its_body_not_used(web: Web) -> None:
    web.site.pages["/broken"] = answer(b"<p>secret trace</p>", 500, "text/html")
    for path, status in (("/none", 404), ("/broken", 500)):
        result = await web.fetch(web.url(path))
        assert (result.is_error, result.structured["code"]) == (None, status)
        assert str(status) in text_of(result)
        assert "secret" not in text_of(result)
    assert web.small.requests == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "Invalid URL"),
        ("no url", "Invalid URL"),
        ("//ok.test/", "Invalid URL"),
        ("http://", "Invalid URL"),
        ("https://[::1", "Invalid URL"),
        ("https://a..b/", "Invalid URL"),
        ("https://ok.test:99999/", "Invalid URL"),
        ("https://" + "a" * 5000, "Invalid URL"),
        ("file:///etc/passwd", "Invalid URL"),
        ("ftp://ok.test/", "Invalid URL"),
        ("ftp://x/", "Invalid URL"),
        ("https://me:secret@ok.test/", "Invalid URL"),
        ("http://localhost/", "curl"),
        ("http://intranet", "curl"),
        ("https://denied.test/", "operator does not allow"),
        ("https://ok.test.evil.test:22/", "port 22"),
        ("https://127.1/", "Invalid URL"),
        ("https://0x7f000001/", "Invalid URL"),
        ("https://2130706433/", "Invalid URL"),
    ],
)
async def test_what_is_not_fetched_is_said(web: Web, url: str, says: str) -> None:
    result = await web.fetch(url)
    assert result.is_error
    assert says in text_of(result)
    assert web.site.connections == 0


@pytest.mark.requirement("web:no-private-address")
async def test_no_private_address_is_ever_fetched(web: Web) -> None:
    """N08."""
    for address in filter(None, REFUSED_ADDRESSES):
        host = f"[{address}]" if ":" in address else address
        result = await web.fetch(f"https://{host}:{web.site.port}/")
        assert result.is_error, address
    assert web.site.connections == 0


async def test_a_failure_of_tls_is_told_in_its_own_words(web: Web) -> None:
    web.pages.guard = Guard(web.pages.guard.rules, resolve=looked_up)
    result = await web.fetch(web.url())
    assert result.is_error
    assert "CERTIFICATE_VERIFY_FAILED" in text_of(result)
    assert "127.0.0.1" not in text_of(result)


async def test_a_long_page_is_read_window_by_window(web: Web) -> None:
    web.site.pages["/"] = answer(b"".join(b"%09d," % n for n in range(25_000)))
    first = text_of(await web.fetch(web.url()))
    assert "250000 characters" in first
    assert "offset 100000" in first
    assert "000009999," in web.asked()
    assert "000010000," not in web.asked()
    last = text_of(await web.fetch(web.url(), offset=200_000))
    assert "from 200000 to 250000.]" in last
    assert "000024999," in web.asked()
    asked = len(web.small.requests)
    assert "nothing at offset 250000" in text_of(await web.fetch(web.url(), offset="250000"))
    assert (len(web.small.requests), len(web.site.asked)) == (asked, 1)


async def test_what_is_no_text_is_stored_for_read(web: Web) -> None:
    png = b"\x89PNG\r\n\x1a\n\0\0" + bytes(range(256))
    web.site.pages["/i"] = answer(png, kind="image/png")
    web.site.pages["/d"] = answer(b"only words", kind="application/octet-stream")
    told = text_of(await web.fetch(web.url("/i")))
    path = told.rpartition(" ")[2].rstrip("]")
    assert web.desk.content_of(path) == png
    assert (path.endswith(".png"), web.small.requests) == (True, [])
    told = text_of(await web.fetch(web.url("/d")))
    assert told.startswith(
        "A fine page.\n\n[application/octet-stream, 10 bytes, is stored in /tmp/"
    )
    assert "only words" in web.asked()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/plain; charset=shift_jis", "日本".encode("shift_jis")),
        ("text/html", "<meta charset='gb2312'><p>日本".encode("gb2312")),
        ("text/html; charset=nonsense", "<p>日本".encode()),
        ("text/html; charset=zlib_codec", "<p>日本".encode()),
        ("application/json", '{"a":"日本"}'.encode()),
        ("", "日本".encode()),
        ("text/plain", b"\xff\xfe" + "日本".encode("utf-16le")),
    ],
)
async def test_a_page_is_decoded_as_it_is_encoded(web: Web, kind: str, body: bytes) -> None:
    web.site.pages["/"] = answer(body, kind=kind)
    await web.fetch(web.url())
    assert "日本" in web.asked()


HOSTILE = {
    "nested": b"<div>" * 5_000 + b"x",
    "bold": b"<b>" * 100_000 + b"x",
    "lists": b"<ul><li>a" * 3_000,
    "angles": b"<" * 1_000_000 + b"x",
    "entities": b"&" * 1_000_000,
    "comments": b"<!--" * 200_000,
    "table": b"<table>" + (b"<tr>" + b"<td>x" * 300) * 300,
    "attributes": b"<a " + b"x=1 " * 200_000 + b">x",
    "wrong charset": b"<meta charset=utf-16><p>x\xff\xfe\0",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_an_odd_page_costs_a_bounded_time_and_no_turn_of_others(web: Web, name: str) -> None:
    """N13."""
    web.site.pages["/"] = answer(HOSTILE[name], kind="text/html")
    late_s = 0.0

    async def tick() -> None:
        nonlocal late_s
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            late_s = max(late_s, time.monotonic() - before)

    ticking = asyncio.create_task(tick())
    began = time.monotonic()
    result = await web.fetch(web.url())
    ticking.cancel()
    assert time.monotonic() - began < 10
    assert "internal error" not in text_of(result)
    assert late_s < 0.2


@pytest.mark.parametrize("status", [204, 200])
async def test_a_page_without_a_body_is_said_to_be_empty(web: Web, status: int) -> None:
    web.site.pages["/"] = answer(b"", status, "text/html")
    assert "holds no text" in text_of(await web.fetch(web.url()))


async def test_a_model_that_gives_no_answer_is_an_error_of_the_call(web: Web) -> None:
    web.small.error = ModelRejected("no credit", category="billing_error", status=402)
    failed = await web.fetch(web.url())
    assert (failed.is_error, "no credit" in text_of(failed)) == (True, True)
    web.small.error, web.small.blocks = None, []
    assert "gave no answer" in text_of(await web.fetch(web.url()))
    web.desk.beyond = Beyond(web.pages)
    assert "no model here" in text_of(await web.fetch(web.url()))
