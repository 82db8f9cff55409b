"""Web Push: a message that only one browser can read (RFC 8291), and the proof that we are its sender (RFC 8292).

The primitives are those of ``cryptography``, which the server needs for its certificate anyway (docs/decisions/0026).
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from stagedoor.errors import BadRequest, ConfigError
from stagedoor.machine.private_file import read_private
from stagedoor.whole_file import replace_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

RECORD = 4096
"""Bytes of one message, with all that is around it: what every push service must take."""
_HEAD = 16 + 4 + 1 + 65
_TAG = 16
LONGEST_MESSAGE = RECORD - _HEAD - _TAG - 1
PADDED_TO = 1024
"""Messages are filled up to a multiple of this: their length tells the push service nothing."""
VALID_SECONDS = 12 * 3600
"""Of a signature; push services refuse more than a day."""
KEY_FILE = "push-key.pem"


def encrypt(
    message: bytes, public: bytes, secret: bytes, *, salt: bytes = b"", sender: ec.EllipticCurvePrivateKey | None = None
) -> bytes:
    """The body of a request with ``Content-Encoding: aes128gcm``. ``public`` and ``secret`` are the browser's.

    ``salt`` and ``sender`` are new for every message; only a test chooses them.
    """
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt = salt or os.urandom(16)
    sender = sender or ec.generate_private_key(ec.SECP256R1())
    own = _point(sender)
    shared = sender.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public))
    common = _derived(shared, secret, b"WebPush: info\x00" + public + own, 32)
    key = _derived(common, salt, b"Content-Encoding: aes128gcm\x00", 16)
    nonce = _derived(common, salt, b"Content-Encoding: nonce\x00", 12)
    sealed = AESGCM(key).encrypt(nonce, message + b"\x02", None)
    return salt + RECORD.to_bytes(4, "big") + bytes([len(own)]) + own + sealed


def padded(message: bytes) -> bytes:
    """With spaces at the end, which mean nothing in JSON."""
    if len(message) > LONGEST_MESSAGE:
        raise ValueError("the message is too long for one push")
    return message.ljust(min(-(-len(message) // PADDED_TO) * PADDED_TO, LONGEST_MESSAGE))


def browser_keys(p256dh: str, auth: str) -> tuple[bytes, bytes]:
    """The browser's public key and secret. Raises ``BadRequest`` for what no browser would send."""
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        public, secret = from_base64(p256dh), from_base64(auth)
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)
    except (ValueError, binascii.Error):
        raise BadRequest("the keys of the push subscription are not valid; subscribe again in the browser") from None
    if len(secret) != 16 or len(public) != 65:
        raise BadRequest("the keys of the push subscription are not valid; subscribe again in the browser")
    return public, secret


class PushKey:
    """The server's own key: browsers give each subscription to one, and push services take messages from it alone."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self.public = base64_of(_point(key))

    @property
    def text(self) -> bytes:
        """All of it, to be kept where only its owner can read."""
        from cryptography.hazmat.primitives import serialization

        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def authorization(self, endpoint: str, contact: str, now: float) -> str:
        """For ``Authorization``: signed for the push service of ``endpoint`` alone, and for hours."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

        parts = urlsplit(endpoint)
        claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": int(now) + VALID_SECONDS, "sub": contact}
        body = ".".join(base64_of(msgspec.json.encode(part)) for part in ({"typ": "JWT", "alg": "ES256"}, claims))
        r, s = decode_dss_signature(self._key.sign(body.encode(), ec.ECDSA(hashes.SHA256())))
        signature = base64_of(r.to_bytes(32, "big") + s.to_bytes(32, "big"))
        return f"vapid t={body}.{signature}, k={self.public}"


def push_key(home: Path) -> PushKey:
    """Made at the first use and kept beside the server's token, for its owner alone. One that others could have read
    is replaced; browsers then subscribe again when the page is next opened."""
    from cryptography.hazmat.primitives.asymmetric import ec

    path = home / KEY_FILE
    try:
        return _read(path)
    except (OSError, ValueError, TypeError):
        key = ec.generate_private_key(ec.SECP256R1())
    try:
        replace_file(path, PushKey(key).text.decode())
    except OSError as fault:
        raise ConfigError(f"cannot write {path}: {fault.strerror}") from fault
    return PushKey(key)


def key_in(text: bytes) -> PushKey:
    """The one that was written as ``text``. Raises ``ValueError``."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = serialization.load_pem_private_key(text, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("not a key for Web Push")
    return PushKey(key)


def _read(path: Path) -> PushKey:
    return key_in(read_private(path))


def base64_of(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def from_base64(text: str) -> bytes:
    standard = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)


def _point(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def _derived(material: bytes, salt: bytes, context: bytes, length: int) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(hashes.SHA256(), length, salt, context).derive(material)
