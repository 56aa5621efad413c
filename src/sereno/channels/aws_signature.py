"""Signature Version 4, with which AWS authenticates requests."""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

import msgspec

ALGORITHM = "AWS4-HMAC-SHA256"


class AwsCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """The key of a user, or of a role with its session token; and what a signature is valid for."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""
    region: str
    service: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


def signed_headers(
    credentials: AwsCredentials, method: str, url: str, headers: Mapping[str, str], body: bytes, now: datetime
) -> dict[str, str]:
    """Return the headers with those that authenticate the request; its URL has no query."""
    address, at = urlsplit(url), now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    sent = {**headers, "X-Amz-Date": at}
    if credentials.session_token:
        sent["X-Amz-Security-Token"] = credentials.session_token
    canonical = {name.lower(): " ".join(value.split()) for name, value in sent.items()} | {
        "host": address.netloc.lower()
    }
    names = ";".join(sorted(canonical))
    request = "\n".join(
        [
            method,
            quote(address.path or "/", safe="/-_.~"),
            "",
            *(f"{name}:{canonical[name]}" for name in sorted(canonical)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{at[:8]}/{credentials.region}/{credentials.service}/aws4_request"
    text = "\n".join([ALGORITHM, at, scope, hashlib.sha256(request.encode()).hexdigest()])
    signature = hmac.new(_key(credentials, at[:8]), text.encode(), hashlib.sha256).hexdigest()
    credential = f"{credentials.access_key_id}/{scope}"
    sent["Authorization"] = f"{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return sent


def _key(credentials: AwsCredentials, day: str) -> bytes:
    """Return the key for requests of one day, region and service."""
    key = f"AWS4{credentials.secret_access_key}".encode()
    for part in (day, credentials.region, credentials.service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
