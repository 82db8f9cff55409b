"""``serve --lan``: the certificate that is made for it, and when it is made anew."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stagedoor.errors import ConfigError
from stagedoor.server import certificate
from stagedoor.server.certificate import fingerprint, lan_settings, own_fingerprint
from stagedoor.server.running import can_be_reached, public_url
from stagedoor.service.config.settings import Settings

ADDRESS = "192.0.2.7"
"""For documentation: nobody has it."""


def files(home: Path) -> tuple[Path, Path]:
    return home / "lan-cert.pem", home / "lan-key.pem"


def test_it_is_made_for_the_address_and_for_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    settings = lan_settings(Settings(hosts=("https://proxy.example",)), home, address=ADDRESS)
    cert, key = files(home)
    assert (settings.host, settings.hosts) == (ADDRESS, (ADDRESS, "https://proxy.example"))
    assert (settings.tls_cert, settings.tls_key) == (str(cert), str(key))
    assert [path.stat().st_mode & 0o777 for path in (home, cert, key)] == [0o700, 0o600, 0o600]
    page = public_url(settings)
    assert (page, can_be_reached(page)) == (f"https://{ADDRESS}:16180", True)
    assert len(own_fingerprint(settings, home)) == 64
    assert own_fingerprint(Settings(), home) == own_fingerprint(Settings(tls_cert="/elsewhere.pem"), home) == ""


def test_a_client_that_knows_it_connects_and_sees_its_fingerprint(tmp_path: Path) -> None:
    settings = lan_settings(Settings(), tmp_path, address=ADDRESS)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(settings.tls_cert, settings.tls_key)
    ours, theirs = socket.socketpair()

    def answer() -> None:
        with server_side.wrap_socket(theirs, server_side=True) as connection:
            connection.sendall(b"hello")

    thread = threading.Thread(target=answer)
    thread.start()
    client_side = ssl.create_default_context(cafile=settings.tls_cert)
    with client_side.wrap_socket(ours, server_hostname=ADDRESS) as connection:  # the name is checked
        assert connection.recv(5) == b"hello"
        sent = connection.getpeercert(binary_form=True) or b""
    thread.join()
    (tmp_path / "sent.pem").write_text(ssl.DER_cert_to_PEM_cert(sent))
    assert fingerprint(tmp_path / "sent.pem") == own_fingerprint(settings, tmp_path)
    if shutil.which("openssl"):
        words = ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", settings.tls_cert]
        printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        digest = own_fingerprint(settings, tmp_path)
        assert printed.strip().partition("=")[2] == certificate.as_people_compare(digest)


def _other_address(home: Path) -> str:
    return "192.0.2.8"


def _readable(home: Path) -> str:
    files(home)[1].chmod(0o640)
    return ADDRESS


def _second_name(home: Path) -> str:
    os.link(files(home)[1], home.parent / "second")
    return ADDRESS


def _no_pair(home: Path) -> str:
    other = home.parent / "other"
    lan_settings(Settings(), other, address=ADDRESS)
    files(other)[1].replace(files(home)[1])
    return ADDRESS


def _broken(home: Path) -> str:
    files(home)[0].write_text("nothing of the kind")
    return ADDRESS


def _gone(home: Path) -> str:
    files(home)[1].unlink()
    return ADDRESS


def _link(home: Path) -> str:
    files(home)[1].rename(home.parent / "moved")
    files(home)[1].symlink_to(home.parent / "moved")
    return ADDRESS


@pytest.mark.parametrize("change", [_other_address, _readable, _second_name, _no_pair, _broken, _gone, _link])
def test_it_is_made_anew_when_it_cannot_go_on(tmp_path: Path, change: Callable[[Path], str]) -> None:
    home = tmp_path / "home"
    first = own_fingerprint(lan_settings(Settings(), home, address=ADDRESS), home)
    address = change(home)
    settings = lan_settings(Settings(), home, address=address)
    assert own_fingerprint(settings, home) != first
    assert [path.lstat().st_mode & 0o777 for path in files(home)] == [0o600, 0o600]
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(settings.tls_cert, settings.tls_key)


def test_it_stays_the_same_until_it_is_about_to_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = own_fingerprint(lan_settings(Settings(), tmp_path, address=ADDRESS), tmp_path)
    assert own_fingerprint(lan_settings(Settings(), tmp_path, address=ADDRESS), tmp_path) == first
    monkeypatch.setattr(certificate, "RENEW_DAYS", certificate.DAYS + 1)
    assert own_fingerprint(lan_settings(Settings(), tmp_path, address=ADDRESS), tmp_path) != first


def test_a_certificate_of_ones_own_is_used(tmp_path: Path) -> None:
    settings = lan_settings(Settings(tls_cert="/c.pem", tls_key="/k.pem"), tmp_path, address=ADDRESS)
    assert (settings.tls_cert, settings.tls_key, settings.host) == ("/c.pem", "/k.pem", ADDRESS)
    assert not files(tmp_path)[0].exists()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "0.0.0.0", "::", "localhost", "box.local"])
def test_addresses_that_no_phone_can_reach_are_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="--host"):
        lan_settings(Settings(), tmp_path, address=address)
    assert list(tmp_path.iterdir()) == []
