"""Which addresses the service may dial for strangers: public ones, and no others.

`ipaddress.is_global` alone lets through multicast, the host agents of clouds, and addresses of
version 6 that stand for one of version 4; so the kinds are told apart here.
"""

import socket
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Literal

AddressKind = Literal["public", "private", "forbidden"]
"""`private`: an operator may let hosts resolve to it. `forbidden`: nobody may."""

_PRIVATE = tuple(
    ip_network(network)
    for network in (
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "100.64.0.0/10"),
        *("fc00::/7", "::1/128"),
    )
)
_FORBIDDEN = tuple(
    ip_network(network)
    for network in (
        *("169.254.0.0/16", "fe80::/10"),  # link-local: where clouds keep their metadata
        *("168.63.129.16/32", "100.100.100.200/32", "192.0.0.0/24", "fd00:ec2::/32"),  # the same
        *("224.0.0.0/4", "240.0.0.0/4", "0.0.0.0/8", "192.88.99.0/24", "ff00::/8", "fec0::/10"),
        # Each of these holds an address of version 4: compatible, NAT64 (two), 6to4, Teredo.
        *("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"),
    )
)
_COMPATIBLE = ip_network("::/96")
_LOOPBACK = IPv6Address("::1")


def address_kind(text: str) -> AddressKind:
    """Say of which kind an address is. What is no address in its canonical form is forbidden."""
    try:
        address = ip_address(text)
    except ValueError:
        return "forbidden"
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return "forbidden"
        address = address.ipv4_mapped or address
    return _kind(address)


def _kind(address: IPv4Address | IPv6Address) -> AddressKind:
    if any(address in network for network in _FORBIDDEN):
        return "forbidden"
    if address in _COMPATIBLE and address != _LOOPBACK:
        return "forbidden"
    if any(address in network for network in _PRIVATE):
        return "private"
    return "public" if address.is_global and not address.is_multicast else "forbidden"


def is_own_address(text: str) -> bool:
    """Say whether an address, public though it may be, is one of this host's interfaces."""
    return _can_bind(text) and not _binds_anything(":" in text)


@cache
def _binds_anything(is_ipv6: bool) -> bool:
    """Say whether this machine lets any address be bound (`ip_nonlocal_bind`)."""
    return _can_bind("2001:db8::1" if is_ipv6 else "192.0.2.1")


def _can_bind(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
