"""What the service reaches for strangers, and what it does not. Ids: security cases N04 to N14."""

import asyncio
import contextlib
import gzip
import itertools
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import httpx
import pytest
import trustme

from app.errors import AnswerTooLarge, EgressRefused
from app.sandbox.bounded_body import Caps
from app.sandbox.egress import EgressRules, listed
from app.sandbox.guarded_http import Guard, Resolve, send
from tests.fakes.site import Site, answer

REFUSED_ADDRESSES = (
    *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0"),  # noqa: S104 - nothing is bound
    *("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "192.88.99.1"),
    *("224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "203.0.113.9"),
    *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "fe80::1"),
    *("fe80::1%lo", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:a9fe:a9fe::1"),
    *("not an address", "127.1", ""),
)


def names(**addresses: str | Sequence[str]) -> Resolve:
    """A resolver that knows `name.test` for each name."""

    async def resolve(host: str) -> Sequence[str]:
        found = addresses[host.removesuffix(".test")]
        return [found] if isinstance(found, str) else found

    return resolve


async def nothing_known(host: str) -> Sequence[str]:
    raise AssertionError(f"{host} was looked up")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site({"/": answer(b"hello")}) as running:
        yield running


def guard(
    site: Site, resolve: Resolve = nothing_known, *, own: bool = False, **rules: object
) -> Guard:
    """A guard that reaches the site as `ok.test`, and would reach its port anywhere."""
    given = {"private_hosts": ("ok.test",), "ports": frozenset({80, 443, site.port}), **rules}
    return Guard(EgressRules(**given, is_own=lambda _: own), resolve=resolve)  # type: ignore[arg-type]  # of mixed types


async def get(
    guard: Guard, url: str, caps: Caps | None = None, redirects: int = 0
) -> httpx.Response:
    async with guard.client(caps) as client:
        return await send(client, client.build_request("GET", url), redirects=redirects)


@pytest.mark.parametrize("address", REFUSED_ADDRESSES)
async def test_a_name_at_an_address_that_is_not_public_is_refused(site: Site, address: str) -> None:
    """N06, N10: one such address among others is enough."""
    resolve = names(evil=["93.184.216.34", address], bad=address)
    for name in ("evil", "bad"):
        with pytest.raises(EgressRefused) as refused:
            await get(guard(site, resolve), f"http://{name}.test:{site.port}/")
        assert (
            str(refused.value) == f"{name}.test is not at a public address, so it is not reached."
        )
    assert site.connections == 0


@pytest.mark.parametrize(
    "host",
    [
        *("127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.0.0.1", "0", "[::1]"),
        *("[::ffff:169.254.169.254]", "[::ffff:7f00:1]", "100.64.0.1", "168.63.129.16"),
        *("[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "[fd00:ec2::254]", "224.0.0.1", "127.0.0.1."),
        *("１２７.0.0.1", "ok.test%00.evil.test", "ok.test%2f.evil.test", "a..b", "a" * 300),
    ],
)
async def test_an_address_in_a_url_is_refused_before_any_lookup(site: Site, host: str) -> None:
    """N04, N08."""
    try:
        with pytest.raises(EgressRefused):
            await get(guard(site), f"http://{host}:{site.port}/")
    except httpx.InvalidURL:
        pass
    assert site.connections == 0


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("file:///etc/passwd", "Only http and https"),
        ("ftp://ok.test/", "Only http and https"),
        ("http://me:secret@ok.test/", "user name or a password"),
        ("http://me@ok.test/", "user name or a password"),
        ("http://other.test:22/", "port 22"),
        ("http://denied.test/", "operator does not allow"),
        ("http://sub.denied.test/", "operator does not allow"),
        ("http://unlisted.test/", "operator does not allow"),
        ("http://ok.test@evil.test/", "user name or a password"),
        ("http://allowed.test.evil.test/", "operator does not allow"),
        ("http://evil.test#.allowed.test/", "operator does not allow"),
    ],
)
async def test_what_rules_forbid_is_refused_before_any_lookup(
    site: Site, url: str, says: str
) -> None:
    rules = guard(
        site,
        denied_hosts=("denied.test", "*.denied.test"),
        allowed_hosts=("allowed.test", "other.test", "*.denied.test"),
    )
    with pytest.raises(EgressRefused, match=says):
        await get(rules, url)


async def test_a_listed_private_host_is_reached_by_its_name(site: Site) -> None:
    reached = guard(site, names(ok="127.0.0.1"), allowed_hosts=())
    assert (await get(reached, f"http://OK.test:{site.port}/")).content == b"hello"
    assert site.asked[0].headers["host"] == f"ok.test:{site.port}"


@pytest.mark.parametrize(
    ("listed_as", "is_reached"),
    [("127.0.0.1", True), ("127.0.0.1:{port}", True), ("127.0.0.1:1", False), ("ok.test", False)],
)
async def test_a_private_address_is_reached_where_it_is_listed(
    site: Site, listed_as: str, is_reached: bool
) -> None:
    rules = guard(site, private_hosts=(listed_as.format(port=site.port),))
    url = f"http://127.0.0.1:{site.port}/"
    if is_reached:
        assert (await get(rules, url)).status_code == 200
    else:
        with pytest.raises(EgressRefused):
            await get(rules, url)


async def test_a_metadata_address_is_not_reached_though_it_is_listed(site: Site) -> None:
    listed_name = guard(site, names(ok="169.254.169.254"))
    with pytest.raises(EgressRefused):
        await get(listed_name, "http://ok.test/")
    with pytest.raises(EgressRefused):
        await get(guard(site, private_hosts=("169.254.169.254",)), "http://169.254.169.254/")


async def test_a_public_address_of_this_machine_counts_as_private(site: Site) -> None:
    with pytest.raises(EgressRefused):
        await get(guard(site, names(me="93.184.216.34"), own=True), "http://me.test/")


async def test_the_checked_address_is_dialled_whatever_the_name_says_next() -> None:
    """N09: the first answer is used; the second, which a check-then-fetch would use, never."""
    answers = itertools.cycle(["127.0.0.2", "127.0.0.1"])
    lookups = 0

    async def flipping(_: str) -> Sequence[str]:
        nonlocal lookups
        lookups += 1
        return [next(answers)]

    checked = Site({"/": answer(b"checked")}, address="127.0.0.2")
    async with checked, Site({"/": answer(b"other")}, port=checked.port) as other:
        reached = guard(checked, flipping)
        for _ in range(10):
            assert (await get(reached, f"http://ok.test:{checked.port}/")).content == b"checked"
            next(answers)
        assert (lookups, checked.connections, other.connections) == (10, 10, 0)


async def test_redirects_on_one_host_are_followed_and_those_to_another_are_told(site: Site) -> None:
    there = guard(site, names(ok="127.0.0.1"))
    base = f"http://ok.test:{site.port}"
    site.pages |= {
        "/a": answer(status=302, location="/b"),
        "/b": answer(status=301, location="/"),
        "/away": answer(status=302, location="http://other.test/x"),
        "/private": answer(status=302, location="http://127.0.0.1/"),
        "/file": answer(status=302, location="file:///etc/passwd"),
        "/loop": answer(status=302, location="/loop"),
        "/less": answer(status=302, location="ftp://ok.test/"),
    }
    assert (await get(there, f"{base}/a", redirects=5)).content == b"hello"
    for path in ("/away", "/private", "/file", "/less"):
        told = await get(there, base + path, redirects=5)
        assert (told.status_code, told.next_request is not None) == (302, True)
    site.asked.clear()
    with pytest.raises(httpx.TooManyRedirects):
        await get(there, f"{base}/loop", redirects=100)
    assert len(site.asked) == 6
    assert (await get(there, f"{base}/a")).status_code == 302


@pytest.mark.parametrize(
    "location",
    [
        *("http://[::1", "http://ok.test:99999/", "//", "http://", "", "?", "http://a b/"),
        *("http://ok.test\\@evil.test/", "http://\xff/", "%00", "javascript:x", "http:///x"),
        *("http://ok.test:x/", "//127.1/", "x" * 7000, "http://" + "a" * 7000),
    ],
)
async def test_an_odd_redirect_is_an_answer_or_an_error_of_http(site: Site, location: str) -> None:
    there = guard(site, names(ok="127.0.0.1"))
    site.pages["/odd"] = answer(status=302, location=location)
    with contextlib.suppress(httpx.HTTPError, EgressRefused):
        found = await get(there, f"http://ok.test:{site.port}/odd", redirects=5)
        assert found.status_code in {302, 404, 200}


async def test_a_client_that_follows_redirects_itself_is_guarded_at_each_hop(site: Site) -> None:
    """N11: and `Authorization` stays with the host that it was meant for."""
    reached = guard(site, names(ok="127.0.0.1", more="127.0.0.1"), private_hosts=("*.test",))
    site.pages["/away"] = answer(status=307, location=f"http://more.test:{site.port}/")
    site.pages["/private"] = answer(status=302, location=f"http://127.0.0.1:{site.port}/")
    async with httpx.AsyncClient(
        transport=reached.transport(), follow_redirects=True, headers={"authorization": "Bearer x"}
    ) as client:
        await client.post(f"http://ok.test:{site.port}/away", content=b"data")
        with pytest.raises(EgressRefused):
            await client.get(f"http://ok.test:{site.port}/private")
    told = [asked.headers.get("authorization") for asked in site.asked]
    assert told == ["Bearer x", None, "Bearer x"]
    assert [asked.body for asked in site.asked] == [b"data", b"data", b""]


Write = Callable[[asyncio.StreamWriter], object]


def drip(piece: bytes, every_s: float, head: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> Write:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(every_s)

    return write


ZEROS = gzip.compress(bytes(64_000_000), 1)


@pytest.mark.parametrize(
    ("page", "error"),
    [
        (answer(ZEROS, content_encoding="gzip"), AnswerTooLarge),
        (answer(gzip.compress(b"x" * 900_000) * 9, content_encoding="gzip"), AnswerTooLarge),
        (answer(gzip.compress(b"x"), content_encoding="gzip, gzip"), httpx.DecodingError),
        (answer(b"x", content_encoding="br"), httpx.DecodingError),
        (answer(b"x" * 999, content_encoding="gzip"), httpx.DecodingError),
        (answer(gzip.compress(b"x" * 999)[:-9], content_encoding="gzip"), httpx.DecodingError),
        (drip(b"x" * 65536, 0), AnswerTooLarge),
        (drip(b"x", 0.1), httpx.ReadTimeout),
        (drip(b"X-A: b\r\n", 0.1, b"HTTP/1.1 200 OK\r\n"), httpx.ReadTimeout),
        (drip(b"X-A: b\r\n", 0, b"HTTP/1.1 200 OK\r\n"), httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 10_000_000, httpx.RemoteProtocolError),
        (b"no http at all\r\n\r\n", httpx.RemoteProtocolError),
        (b"", httpx.HTTPError),
    ],
)
async def test_a_hostile_answer_costs_little_and_ends(
    site: Site, page: bytes, error: type[Exception]
) -> None:
    """N12."""
    site.pages["/"] = page
    reached = guard(site, names(ok="127.0.0.1"))
    tracemalloc.start()
    began = time.monotonic()
    try:
        with pytest.raises(error):
            await get(
                reached, f"http://ok.test:{site.port}/", Caps(body_bytes=5_000_000, total_s=1)
            )
        assert time.monotonic() - began < 20
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


async def test_a_body_in_gzip_is_unpacked_and_its_headers_tell_of_what_is_given(site: Site) -> None:
    body = b"".join(str(n).encode() for n in range(100_000))
    packed = gzip.compress(body[:1000]) + gzip.compress(body[1000:])
    site.pages["/"] = answer(packed, content_encoding="gzip")
    found = await get(guard(site, names(ok="127.0.0.1")), f"http://ok.test:{site.port}/")
    assert found.content == body
    assert "content-encoding" not in found.headers
    assert site.asked[0].headers["accept-encoding"] == "gzip"


async def test_tls_is_checked_against_the_name(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("ok.test").configure_cert(tls)
    resolve = names(ok="127.0.0.1", other="127.0.0.1")
    async with Site({"/": answer(b"hello")}, tls) as site:
        rules = EgressRules(private_hosts=("*.test",))
        trusting = Guard(rules, resolve=resolve, ca_file=str(tmp_path / "ca.pem"))
        assert (await get(trusting, f"https://ok.test:{site.port}/")).content == b"hello"
        plain = answer(status=302, location=f"http://ok.test:{site.port}/")
        site.pages["/plain"] = plain
        told = await get(trusting, f"https://ok.test:{site.port}/plain", redirects=5)
        assert told.status_code == 302, "a way out of TLS is not followed"
        with pytest.raises(httpx.ConnectError, match="certificate"):
            await get(trusting, f"https://other.test:{site.port}/")
        with pytest.raises(httpx.ConnectError, match="certificate"):
            await get(Guard(rules, resolve=resolve), f"https://ok.test:{site.port}/")
        assert len(site.asked) == 2


async def test_proxies_of_the_environment_are_ignored(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N14."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    found = await get(guard(site, names(ok="127.0.0.1")), f"http://ok.test:{site.port}/")
    assert found.content == b"hello"


async def test_a_name_without_address_is_an_error_of_connecting(site: Site) -> None:
    with pytest.raises(httpx.ConnectError):
        await get(guard(site, names(ok=[])), "http://ok.test/")


@pytest.mark.parametrize(
    ("host", "pattern", "is_listed"),
    [
        ("ok.test", "ok.test", True),
        ("ok.test", "OK.TEST.", True),
        ("a.ok.test", "*.ok.test", True),
        ("ok.test", "*.ok.test", False),
        ("aok.test", "*.ok.test", False),
        ("a.ok.test", "ok.test", False),
        ("1.2.3.4", "*.3.4", False),
        ("::1", "[::1]", True),
    ],
)
def test_a_list_of_hosts_matches_names_and_wildcards(
    host: str, pattern: str, is_listed: bool
) -> None:
    """N05."""
    assert listed(host, (pattern,)) is is_listed
