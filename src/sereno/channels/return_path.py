"""Signed return paths of emails (VERP): a bounce comes back to an address that names its email and cannot be made up.

    bounces@example.org  ->  bounces+<email, signature>@example.org

The address is read in lower case, because some servers change the case of addresses.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable

from sereno.channels.email_content import LONGEST_LOCAL, addr_spec
from sereno.errors import InvalidAddress

# Bytes of the digest of a message's key, and of the signature; together without padding in base32.
DIGEST_BYTES, SIGNATURE_BYTES = 20, 10
TOKEN_LENGTH = (DIGEST_BYTES + SIGNATURE_BYTES) * 8 // 5
# Candidates that are checked in one report.
MOST_CANDIDATES = 20


class ReturnPath:
    """The return paths of one account. `base`: the address at which bounces arrive, without the signed part."""

    def __init__(self, base: str, secret: str) -> None:
        self._local, _, self._domain = addr_spec(base).rpartition("@")
        self._secret = secret.encode("utf-8", "replace")
        if not secret:
            raise InvalidAddress("return_path needs bounce_secret, with which it is signed")
        if "+" in self._local or len(self._local) > LONGEST_LOCAL - 1 - TOKEN_LENGTH:
            most = LONGEST_LOCAL - 1 - TOKEN_LENGTH
            raise InvalidAddress(f"the part of return_path before the @ has at most {most} characters, and no +")
        address = rf"{re.escape(self._local)}\+([a-z2-7]{{{TOKEN_LENGTH}}})@{re.escape(self._domain)}(?![\w.-])"
        self._address = re.compile(rf"(?<![\w.+-]){address}", re.IGNORECASE | re.ASCII)

    def address(self, digest: str) -> str:
        """Return the address for an email, by the digest of its key in hexadecimal."""
        raw = bytes.fromhex(digest)
        token = base64.b32encode(raw + self._signature(raw)).decode().lower()
        return f"{self._local}+{token}@{self._domain}"

    def digest(self, texts: Iterable[str]) -> str | None:
        """Return the digest of the first address with a valid signature; None if there is none."""
        tokens = [found[1] for text in texts for found in self._address.finditer(text)]
        for token in tokens[:MOST_CANDIDATES]:
            try:
                raw = base64.b32decode(token.upper())
            except binascii.Error:
                continue
            digest, signature = raw[:DIGEST_BYTES], raw[DIGEST_BYTES:]
            if hmac.compare_digest(signature, self._signature(digest)):
                return digest.hex()
        return None

    def _signature(self, digest: bytes) -> bytes:
        return hmac.new(self._secret, b"return path\0" + digest, hashlib.sha256).digest()[:SIGNATURE_BYTES]
