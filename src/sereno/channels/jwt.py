"""JSON Web Tokens that identify a sender to a push service (RFC 7519), signed with ES256 or RS256."""

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

# Bytes of each of the two numbers of an ES256 signature.
SCALAR_BYTES = 32


def es256(key: "EllipticCurvePrivateKey", claims: Mapping[str, Any], header: Mapping[str, str]) -> str:
    """Return a token signed with a key of P-256."""
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - an extra, needed only to sign
    from cryptography.hazmat.primitives.asymmetric import ec, utils  # noqa: PLC0415 - the same

    signed = _signed_part(header, "ES256", claims)
    r, s = utils.decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{base64url(r.to_bytes(SCALAR_BYTES) + s.to_bytes(SCALAR_BYTES))}"


def rs256(key: "RSAPrivateKey", claims: Mapping[str, Any], header: Mapping[str, str]) -> str:
    """Return a token signed with an RSA key."""
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - see es256
    from cryptography.hazmat.primitives.asymmetric import padding  # noqa: PLC0415 - the same

    signed = _signed_part(header, "RS256", claims)
    return f"{signed}.{base64url(key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _signed_part(header: Mapping[str, str], algorithm: str, claims: Mapping[str, Any]) -> str:
    parts = ({"typ": "JWT", "alg": algorithm, **header}, claims)
    return ".".join(base64url(msgspec.json.encode(part)) for part in parts)
