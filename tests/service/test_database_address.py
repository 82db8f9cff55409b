"""Addresses of databases: what is shown of them, and which ways are refused."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from stagedoor.errors import ConfigError
from stagedoor.service.postgres import password_in
from stagedoor.service.postgres.address import DatabaseAddress, redacted, without_password

LOCAL = [
    "postgresql:///name",
    "postgresql://me@/name?host=/run/postgresql",
    "postgres://me@localhost/name",
    "postgresql://me@127.0.0.2:5433/name",
    "postgresql://me@[::1]/name?sslmode=disable",
]
FAR = [
    "postgresql://me@db.example.org/name",
    "postgresql://10.0.0.7/name",
    "postgresql://me@a,b/name?sslmode=verify-full",
]


@pytest.mark.parametrize("url", LOCAL)
def test_a_socket_and_loopback_need_no_tls(url: str) -> None:
    assert DatabaseAddress(url).arguments()["ssl"] is False


@pytest.mark.parametrize("url", FAR)
def test_every_other_way_is_checked_by_name(url: str) -> None:
    context = DatabaseAddress(url).arguments()["ssl"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca", "nonsense"])
def test_less_than_that_is_refused(mode: str) -> None:
    with pytest.raises(ConfigError, match=r"db\.example\.org.*is on another machine.*leave sslmode away"):
        DatabaseAddress(f"postgresql://me:secret@db.example.org/name?sslmode={mode}")


def test_tls_on_loopback_is_checked_when_it_is_asked_for() -> None:
    context = DatabaseAddress("postgresql://me@localhost/name?sslmode=verify-full").arguments()["ssl"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"certificates.*cannot be read.*check sslrootcert"):
        DatabaseAddress(f"postgresql://me@db.example.org/name?sslrootcert={tmp_path / 'none.pem'}")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3cret@h:1/d", "postgresql://me@h:1/d"),
        ("postgresql://me:s3cret@/d?host=/run&password=s3cret", "postgresql://me@/d?host=/run"),
        ("postgresql://h/d?options=-cs3cret&sslkey=s3cret&sslmode=require", "postgresql://h/d?sslmode=require"),
        ("postgresql://me:s3:cr@et@h/d", "postgresql://me@h/d"),
        ("postgresql://[s3cret/d", "postgresql://…"),
    ],
)
def test_no_password_is_ever_shown(url: str, shown: str) -> None:
    assert redacted(url) == shown


@pytest.mark.parametrize("url", ["mysql://h/d", "postgresql://h:port/d", "h/d", "postgresql://h/d?a"])
def test_what_is_no_address_is_said_without_it(url: str) -> None:
    with pytest.raises(ConfigError, match=r"the address of (a|the) database"):
        DatabaseAddress(url)


@pytest.mark.parametrize("url", ["postgresql://me:s3cret@localhost/d", "postgresql://localhost/d?password=s3cret"])
def test_a_password_on_the_command_line_is_refused_and_used_from_elsewhere(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"everybody on this machine can read a command line") as refused:
        without_password(url)
    assert "s3cret" not in str(refused.value)
    assert DatabaseAddress(url).arguments()["password"] == "s3cret"
    assert "s3cret" not in DatabaseAddress(url).arguments()["dsn"]
    file = tmp_path / "password"
    file.write_text("s3cret\nmore\n")
    plain = "postgresql://me@localhost/d"
    assert without_password(plain) == plain
    assert DatabaseAddress(plain, password_in(str(file))).arguments()["password"] == "s3cret"
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    assert DatabaseAddress(plain).arguments()["password"] == "s3cret"
    file.write_text("")
    with pytest.raises(ConfigError, match=r"cannot be read from .*it is empty"):
        password_in(str(file))
