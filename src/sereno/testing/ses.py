"""A local SES and SNS: the endpoint that sends, with signed requests; events that SNS signs, with its certificate."""

import base64
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from sereno.channels.aws_signature import AwsCredentials, signed_headers
from sereno.channels.contract import Callback
from sereno.channels.ses import PATH
from sereno.channels.sns import SnsMessage
from sereno.testing.provider import Provider, Request

# Headers that are signed beside `host` and those of the signature itself.
SIGNED = ("content-type",)
_AMZ_DATE = "%Y%m%dT%H%M%SZ"


class SESProvider(Provider):
    """`refuses`: type of the error by address. `sent`: accepted emails by id. `confirmed`: tokens of subscriptions."""

    def __init__(self) -> None:
        super().__init__()
        self.secret_access_key = secrets.token_urlsafe(30)
        self.topic_arn = "arn:aws:sns:eu-west-1:123456789012:mail-events"
        self.refuses: dict[str, str] = {}
        self.sent: dict[str, dict[str, Any]] = {}
        self.confirmed: list[str] = []
        self._key = _key()
        self._certificate = f"/SimpleNotificationService-{secrets.token_hex(16)}.pem"

    @property
    def account(self) -> dict[str, str]:
        return {
            "url": self.url,
            "region": "eu-west-1",
            "access_key_id": "AKIDEXAMPLE1",
            "secret_access_key": self.secret_access_key,
            "sender": "Shop <shop@example.org>",
            "topic_arn": self.topic_arn,
        }

    async def answer(self, request: Request) -> web.StreamResponse:
        if request.method == "GET":
            return self._answer_as_sns(request.path)
        if not self._is_signed(request):
            return _error("InvalidSignatureException", "The request signature does not match", 403)
        if request.path != PATH:
            return _error("NotFoundException", "No such operation", 404)
        email = request.json()
        (address,) = email["Destination"]["ToAddresses"] or [""]
        if "@" not in address or not email["Content"]["Simple"]["Body"]:
            return _error("BadRequestException", "Missing final '@domain'")
        kind = self.refuses.get(address)
        if kind is not None:
            name, _, text = kind.partition(": ")
            return _error(name, text or "Refused", 429 if name == "TooManyRequestsException" else 400)
        name = f"0102{secrets.token_hex(12)}-000000"
        self.sent[name] = email
        return web.json_response({"MessageId": name})

    def _answer_as_sns(self, path: str) -> web.Response:
        if path == self._certificate:
            return web.Response(body=self.certificate())
        if path.startswith("/?Action=ConfirmSubscription&"):
            self.confirmed.append(path.rpartition("Token=")[2])
            return web.Response(text="<ConfirmSubscriptionResponse/>", content_type="text/xml")
        return web.Response(status=404)

    def _is_signed(self, request: Request) -> bool:
        at = datetime.strptime(request.headers.get("x-amz-date", "20000101T000000Z"), _AMZ_DATE).replace(tzinfo=UTC)
        credentials = AwsCredentials(
            access_key_id="AKIDEXAMPLE1",
            secret_access_key=self.secret_access_key,
            session_token=request.headers.get("x-amz-security-token", ""),
            region="eu-west-1",
            service="ses",
        )
        given = {name.title(): request.headers.get(name, "") for name in SIGNED}
        expected = signed_headers(credentials, "POST", self.url + PATH, given, request.body, at)["Authorization"]
        return request.headers.get("authorization") == expected

    def certificate(self, *, days: int = 30) -> bytes:
        """Return the certificate of the key with which SNS signs; it ends after this number of days."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
        end = datetime.now(UTC) + timedelta(days=days)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(self._key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(end - timedelta(days=365)).not_valid_after(end)
        return builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM)

    def event(self, kind: str, name: str, **more: Any) -> Callback:
        """Return the message of SNS with an event of an email."""
        event = {"eventType": kind, "mail": {"messageId": name, "destination": ["ada@example.com"]}, **more}
        return self.notification(msgspec.json.encode(event).decode())

    def notification(self, message: str, **changed: str) -> Callback:
        return self.signed({"Type": "Notification", "Subject": "Amazon SES", "Message": message, **changed})

    def confirmation(self, token: str, **changed: str) -> Callback:
        """Return the message with which SNS asks to confirm the subscription of the callback's URL."""
        url = f"{self.url}/?Action=ConfirmSubscription&TopicArn={self.topic_arn}&Token={token}"
        text = {"Type": "SubscriptionConfirmation", "Message": "You have chosen to subscribe", "Token": token}
        return self.signed({**text, "SubscribeURL": url, **changed})

    def signed(self, fields: Mapping[str, str]) -> Callback:
        """Return a message with these fields; the others have their usual values."""
        whole = {
            "MessageId": secrets.token_hex(16),
            "TopicArn": self.topic_arn,
            "Timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "SignatureVersion": "2",
            "SigningCertURL": self.url + self._certificate,
            "Signature": "",
            **fields,
        }
        text = msgspec.convert(whole, SnsMessage).text()
        digest = SHA1() if whole["SignatureVersion"] == "1" else SHA256()  # noqa: S303 - as SNS does
        signature = self._key.sign(text, padding.PKCS1v15(), digest)
        return Callback(
            body=msgspec.json.encode({**whole, "Signature": base64.b64encode(signature).decode()}), headers={}
        )


@cache
def _key() -> rsa.RSAPrivateKey:
    """Return the key with which SNS signs; to make one takes a third of a second."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _error(kind: str, message: str, status: int = 400) -> web.Response:
    headers = {"x-amzn-ErrorType": f"{kind}:http://internal.amazon.com/coral/com.amazonaws.sesv2/"}
    return web.json_response({"message": message}, status=status, headers=headers)
