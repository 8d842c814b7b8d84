"""The HTTP client for model calls: httpx over aiohttp's engine (docs/adr/0007)."""

import ssl
from functools import cache

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

_KEEPALIVE_S = 20.0
"""Shorter than any server's own, so that we do not post into a connection that is being closed."""
_DNS_CACHE_S = 30


def model_transport(*, ca_file: str | None = None) -> httpx.AsyncBaseTransport:
    """Make what all model calls of the process share. Close it at the end.

    No limit on connections (runs are limited where they are admitted), no HTTP/2, no cookies
    (answers of one tenant must not reach another's requests), nothing from the environment.
    `ca_file`: PEM certificates to trust instead of the bundled ones.
    """
    context = _trusting(ca_file)

    def session() -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0, ssl=context, keepalive_timeout=_KEEPALIVE_S, ttl_dns_cache=_DNS_CACHE_S
        )
        return aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
        )

    # The session is made at the first request, inside the loop that it belongs to.
    return AiohttpTransport(verify=context, trust_env=False, client=session)


@cache
def _trusting(ca_file: str | None) -> ssl.SSLContext:
    """Give what is trusted. Reading the bundled certificates takes a twentieth of a second."""
    if ca_file is not None:
        return ssl.create_default_context(cafile=ca_file)
    return httpx.create_ssl_context(trust_env=False)
