"""Signatures of webhooks, as https://www.standardwebhooks.com says: any of its libraries checks them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

SECRET_PREFIX = "whsec_"


def signature(secret: str, name: str, now: int, body: bytes) -> dict[str, str]:
    """``webhook-signature`` is over the id, the time and the body: none of them can be changed or sent again later."""
    digest = hmac.new(secret_key(secret), f"{name}.{now}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": name,
        "webhook-timestamp": str(now),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def secret_key(secret: str) -> bytes:
    """The key that a secret holds. Raises ``ValueError`` for what is no such secret, or too short to be one."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
    if not secret.startswith(SECRET_PREFIX) or not 24 <= len(key) <= 64:
        raise ValueError("not a signing secret")
    return key
