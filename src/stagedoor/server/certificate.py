"""``serve --lan``: a certificate made on the spot, and kept, so that a phone has to accept it once.

It is signed by itself: what makes it trustworthy is its fingerprint, which the terminal shows and the QR code holds.
Certificate and key are in the server's own folder, for its owner alone; a key that others could have read, or one that
is about to expire or was made for another address, is replaced.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import re
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from stagedoor.errors import ConfigError
from stagedoor.machine.private_file import read_private
from stagedoor.service.config.settings import Settings
from stagedoor.whole_file import replace_file

from .access.tokens import private_folder
from .running import is_loopback, own_address

if TYPE_CHECKING:
    from cryptography import x509

DAYS = 397
"""Browsers refuse certificates that last much longer."""
RENEW_DAYS = 30
_FIRST = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def lan_settings(settings: Settings, home: Path, *, address: str = "") -> Settings:
    """The settings of a server that phones in the same network can reach. Raises ``ConfigError``.

    ``address``: of this machine, where it has several. A certificate of the configuration is used as it is.
    """
    address = address or own_address()
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        raise ConfigError(f"--lan needs an address of this machine with --host, not the name {address!r}") from None
    if is_loopback(address) or parsed.is_unspecified:
        raise ConfigError(
            f"a phone cannot reach {address}: connect this machine to a network, or name one of its addresses there "
            "with --host (for everything else see docs/reach.md)"
        )
    cert, key = certificate_path(home), home / "lan-key.pem"
    if settings.tls_cert:
        cert, key = Path(settings.tls_cert), Path(settings.tls_key)
    else:
        private_folder(home)
        if not _is_good(cert, key, parsed):
            _make(cert, key, parsed)
    name = f"[{address}]" if parsed.version == 6 else address
    return replace(settings, host=address, hosts=(name, *settings.hosts), tls_cert=str(cert), tls_key=str(key))


def certificate_path(home: Path) -> Path:
    return home / "lan-cert.pem"


def own_fingerprint(settings: Settings, home: Path) -> str:
    """SHA-256 of the certificate in hex, where it is one of ours; others need none: a browser knows who signed them."""
    if not settings.tls_cert or Path(settings.tls_cert) != certificate_path(home):
        return ""
    return fingerprint(Path(settings.tls_cert))


def fingerprint(certificate: Path) -> str:
    match = _FIRST.search(certificate.read_text("ascii"))
    return "" if match is None else hashlib.sha256(ssl.PEM_cert_to_DER_cert(match[0])).hexdigest()


def as_people_compare(digest: str) -> str:
    """As browsers show it.

    >>> as_people_compare("0aff12")
    '0A:FF:12'
    """
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2)).upper()


def _make(cert: Path, key: Path, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    private = ec.generate_private_key(ec.SECP256R1())
    host = re.sub(r"[^A-Za-z0-9.-]", "", socket.gethostname())[:40]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Stagedoor on {host or 'this machine'}")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # the phone's clock may be behind
        .not_valid_after(now + datetime.timedelta(days=DAYS - 1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(address)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(private, hashes.SHA256())
    )
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    replace_file(key, pem.decode())
    replace_file(cert, made.public_bytes(serialization.Encoding.PEM).decode())


def _is_good(cert: Path, key: Path, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether the ones that are here can go on: private, a pair, for this address, and for a while yet."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        current = x509.load_pem_x509_certificate(read_private(cert))
        private = load_pem_private_key(read_private(key), None)
        names = current.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        pair = private.public_key() == current.public_key()
    except (OSError, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    return pair and address in names.get_values_for_type(x509.IPAddress) and _lasts(current)


def _lasts(current: x509.Certificate) -> bool:
    now = datetime.datetime.now(datetime.UTC)
    return current.not_valid_before_utc <= now <= current.not_valid_after_utc - datetime.timedelta(days=RENEW_DAYS)
