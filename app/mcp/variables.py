"""Variables of the operator that headers may name, and where each may be sent."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

from app.domain.mcp_options import HttpServer, SseServer
from app.sandbox.egress import listed, plain_host


@dataclass(frozen=True, slots=True)
class HeaderVariables:
    """A tenant names a variable, never sees it, and cannot have it sent to a host of its own."""

    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Hosts that each variable may be sent to, by its name."""
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of those that are set on this host."""

    def refusal(self, server: HttpServer | SseServer) -> tuple[str, str] | None:
        """Say which header may not be sent, and why. The URL has been checked."""
        host = plain_host(httpx.URL(server.url).raw_host.decode("ascii", "replace"))
        for header, name in server.variables():
            if name not in self.hosts:
                return header, f"the operator lets no header name the variable {name}"
            if not listed(host, self.hosts[name]):
                return header, f"the operator does not let {host} have the variable {name}"
        return None
