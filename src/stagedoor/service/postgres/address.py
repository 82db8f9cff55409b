"""The address of a database: ``postgresql://role@host/name``. What of it may be shown, and what is demanded of the way.

Whoever can read along on the network could read every prompt and act as any device. So the way is a socket of this
machine, its loopback, or TLS with a certificate that is checked by name (``verify-full``); anything less is refused.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from stagedoor.errors import ConfigError

SCHEMES = ("postgresql", "postgres")
_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
_OWN = (*_TLS, "passfile", "host", "port", "user", "dbname", "application_name", "connect_timeout")


class DatabaseAddress:
    """``password``: from elsewhere, when the address has none. ``title``: the address as it may be shown to anybody."""

    def __init__(self, url: str, password: str = "") -> None:
        self._parts = urlsplit(url)
        if self._parts.scheme not in SCHEMES:
            raise ConfigError("the address of a database begins with postgresql://, as in postgresql://role@host/name")
        try:
            self._port = self._parts.port
            self._query = dict(
                parse_qsl(self._parts.query, keep_blank_values=True, strict_parsing=bool(self._parts.query))
            )
        except ValueError as fault:
            raise ConfigError(f"the address of the database {redacted(url)} cannot be read: {fault}") from fault
        self.title = redacted(url)
        own = unquote(self._parts.password or "") or self._query.pop("password", "")
        self.has_password = bool(own)
        self._password = own or password or os.environ.get("PGPASSWORD", "")
        if "service" in self._query or os.environ.get("PGSERVICE"):
            raise ConfigError("name the host of the database in its address, not a service (PGSERVICE)")
        if self._query.get("host") and self._parts.hostname:
            raise ConfigError(f"the address of the database {self.title} names two hosts; leave one out")
        named = self._query.get("host") or unquote(self._parts.hostname or "") or os.environ.get("PGHOST", "")
        hosts = named.split(",")
        self.is_local = all(_is_local(host) for host in hosts)
        self._context = None if all(host.startswith("/") or not host for host in hosts) else self._checked_tls()

    def arguments(self) -> dict[str, Any]:
        """For the driver."""
        rest = {name: value for name, value in self._query.items() if name not in _TLS}
        query = "&".join(f"{name}={quote(value, safe='/')}" for name, value in rest.items())
        user = quote(unquote(self._parts.username or ""), safe="")
        place = self._parts.netloc.rpartition("@")[2]
        netloc = f"{user}@{place}" if user else place
        found: dict[str, Any] = {"dsn": urlunsplit(("postgresql", netloc, self._parts.path, query, ""))}
        if self._password:
            found["password"] = self._password
        if self._context is not None:
            found["ssl"] = self._context
        elif self.is_local:
            found["ssl"] = False
        return found

    def _checked_tls(self) -> ssl.SSLContext | None:
        mode = self._query.get("sslmode", "")
        if self.is_local and mode in ("", "disable", "allow", "prefer"):
            return None
        if mode not in ("", "verify-full"):
            raise ConfigError(
                f"the database {self.title} is on another machine: sslmode={mode} would not notice somebody in "
                "between; leave sslmode away (verify-full is meant), and name the authority of its certificate with "
                "sslrootcert=FILE unless this machine knows it"
            )
        try:
            root = self._query.get("sslrootcert", "")
            context = ssl.create_default_context(
                cafile=None if root in ("", "system") else str(Path(root).expanduser())
            )
            if cert := self._query.get("sslcert", ""):
                key = self._query.get("sslkey", "")
                context.load_cert_chain(Path(cert).expanduser(), Path(key).expanduser() if key else None)
        except (OSError, ssl.SSLError) as fault:
            raise ConfigError(
                f"the certificates for the database {self.title} cannot be read: {fault}; check sslrootcert, sslcert "
                "and sslkey in its address"
            ) from fault
        return context


def redacted(url: str) -> str:
    """Without the password, and without anything that is not known to be harmless."""
    try:
        parts = urlsplit(url)
        query = [(name, value) for name, value in parse_qsl(parts.query) if name in _OWN and name != "sslkey"]
    except ValueError:
        return "postgresql://…"
    user, _, place = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    shown = "&".join(f"{key}={quote(value, safe='/')}" for key, value in query)
    return urlunsplit((parts.scheme, f"{name}@{place}" if name else place, parts.path, shown, ""))


def is_database(url: str) -> bool:
    return url.partition("://")[0] in SCHEMES


def without_password(url: str | None) -> str | None:
    """An address from a command line, which everybody on the machine can read: with a password in it, it is refused."""
    if url and DatabaseAddress(url).has_password:
        raise ConfigError(
            "the address of the database has a password in it, and everybody on this machine can read a command line: "
            "put it into a file (log.database_password_file, PGPASSFILE or ~/.pgpass), or the whole address into "
            "config.yaml (log.database)"
        )
    return url


def _is_local(host: str) -> bool:
    if not host or host.startswith("/") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
