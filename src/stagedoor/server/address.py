"""Where this server is reached, as others are to write it down."""

from __future__ import annotations

import ipaddress
import socket

from starlette.types import Scope

from stagedoor.service.config.settings import Settings


def public_url(settings: Settings, scope: Scope | None = None, *, port: int | None = None) -> str:
    """By the first configured name, else by the address it is bound to, or this machine's when that is all of them."""
    scheme = "https" if settings.tls_cert else "http"
    bound = port or _port(settings, scope)
    if settings.hosts:
        named = settings.hosts[0]
        has_port = named.rpartition("]")[2].rpartition(":")[1] == ":"
        return f"{scheme}://{named}" if has_port else f"{scheme}://{named}{_suffix(scheme, bound)}"
    host = settings.host
    if _is_unspecified(host):
        host = own_address()
    return f"{scheme}://{f'[{host}]' if ':' in host else host}{_suffix(scheme, bound)}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it. A name that is not known to be one is not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def own_address() -> str:
    """The address this machine has in its network. Nothing is sent to find it out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation: nobody is there
            found: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return found


def _port(settings: Settings, scope: Scope | None) -> int:
    server = None if scope is None else scope.get("server")
    return settings.port if server is None or not server[1] else int(server[1])


def _suffix(scheme: str, port: int) -> str:
    return "" if port == {"http": 80, "https": 443}[scheme] else f":{port}"


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""
