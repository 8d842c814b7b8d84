"""Where the service may go for strangers: rules over hosts, ports and addresses. No I/O."""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import httpx

from app.errors import EgressRefused
from app.sandbox.addresses import address_kind, is_own_address

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", re.ASCII)
_NUMERIC_END = re.compile(r"(.*\.)?(0x[0-9a-f]*|[0-9]+)", re.ASCII)
"""A name that ends so is read as an address by some: `127.1`, `0x7f000001`."""
_PORT_OF = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class EgressRules:
    """What an operator lets the service reach when a client, an agent or a page says where.

    A list of hosts holds names (`example.com`: that host alone), wildcards (`*.example.com`: all
    beneath it, not itself) and addresses.
    """

    private_hosts: tuple[str, ...] = ()
    """Hosts that may be at private or loopback addresses, on any port or (`host:port`) on one.
    No tenant sets this."""
    allowed_hosts: tuple[str, ...] | None = None
    """If given, the only hosts, beside private ones. Empty: none."""
    denied_hosts: tuple[str, ...] = ()
    """Hosts that are never reached, whatever allows them."""
    ports: frozenset[int] = frozenset({80, 443})
    """Ports of hosts that are not private."""
    is_own: Callable[[str], bool] = is_own_address
    """Whether an address belongs to this machine: such a one counts as private."""

    def check_url(self, url: httpx.URL) -> None:
        """Raise `EgressRefused` for a URL that may not be asked for, before any name lookup."""
        if url.scheme not in _PORT_OF:
            raise EgressRefused("Only http and https URLs are fetched.")
        if url.userinfo:
            raise EgressRefused("A URL with a user name or a password is not fetched.")
        host = plain_host(url.raw_host.decode("ascii", "replace"))
        port = url.port or _PORT_OF[url.scheme]
        if listed(host, self.denied_hosts):
            raise EgressRefused(f"The operator does not allow requests to {host}.")
        if self.is_private(host, port):
            return
        if self.allowed_hosts is not None and not listed(host, self.allowed_hosts):
            raise EgressRefused(f"The operator does not allow requests to {host}.")
        if port not in self.ports:
            raise EgressRefused(f"Requests to port {port} are not allowed.")
        if _is_address(host):
            self.check_addresses(host, port, (host,))

    def check_addresses(self, host: str, port: int, addresses: Sequence[str]) -> None:
        """Raise `EgressRefused` unless every address of a host may be dialled."""
        for address in addresses:
            kind = address_kind(address)
            if kind == "public" and self.is_own(address):
                kind = "private"
            if kind == "forbidden" or (kind == "private" and not self.is_private(host, port)):
                # Which address it was is for the operator: it would map the network for others.
                logger.warning(
                    "Refused to connect to %s, which is at the %s address %s",
                    host,
                    kind,
                    address,
                    extra={"action": "egress_refused", "host": host, "address": address},
                )
                raise EgressRefused(f"{host} is not at a public address, so it is not reached.")

    def is_private(self, host: str, port: int) -> bool:
        """Say whether the operator lets a host be at a private address."""
        return any(
            listed(host, (name,)) and only in {"", str(port)}
            for name, only in map(_split_port, self.private_hosts)
        )


def plain_host(text: str) -> str:
    """Give a host in the one form that is compared. Raises `EgressRefused` for what is none."""
    host = text.lower().removesuffix(".").removeprefix("[").removesuffix("]")
    if _is_address(host):
        return str(ip_address(host))
    if len(host) > 253 or not _NAME.fullmatch(host) or _NUMERIC_END.fullmatch(host):
        raise EgressRefused("The host of the URL is not valid.")
    return host


def listed(host: str, patterns: Iterable[str]) -> bool:
    """Say whether a host, in its plain form, stands in a list of names and wildcards."""
    for pattern in map(str.lower, patterns):
        if pattern.startswith("*."):
            if host.endswith(pattern[1:]) and not _is_address(host):
                return True
        elif host == pattern.removesuffix(".").removeprefix("[").removesuffix("]"):
            return True
    return False


def _split_port(entry: str) -> tuple[str, str]:
    """Part `host:port`; a bare address of version 6 has no port."""
    host, colon, port = entry.rpartition(":")
    if colon and port.isdigit() and (":" not in host or host.endswith("]")):
        return host, port
    return entry, ""


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
