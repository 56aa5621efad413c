"""Messages of Amazon SNS: of which topic, signed by which certificate, and how old.

Any AWS account can create a topic whose messages Amazon signs. So only messages of a configured topic are read, and
certificates come only from the server of SNS in the region of that topic.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from sereno.channels.callback_checks import check_age, is_secret
from sereno.channels.contract import Callback
from sereno.errors import RejectedCallback

# Seconds. SNS repeats a message for an hour, with its first timestamp.
OLDEST_MESSAGE = 2 * 3600.0
# Names in the order in which their values are signed.
SIGNED = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}
SIGNED["UnsubscribeConfirmation"] = SIGNED["SubscriptionConfirmation"]
_TOPIC = re.compile(r"arn:aws[a-z-]*:sns:([a-z]{2}(?:-[a-z]+)+-[0-9]):[0-9]{12}:[A-Za-z0-9_.-]{1,256}")
_CERTIFICATE = re.compile(r"/SimpleNotificationService-[0-9a-f]{16,64}\.pem")
_CONFIRMATION = re.compile(r"/\?Action=ConfirmSubscription&[!-~]{1,2000}")


class SnsMessage(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A message as it is posted."""

    type: Literal["Notification", "SubscriptionConfirmation", "UnsubscribeConfirmation"]
    message_id: str
    topic_arn: str
    message: str
    timestamp: str
    signature: str
    signature_version: Literal["1", "2"]
    certificate: str = msgspec.field(name="SigningCertURL")
    subject: str | None = None
    token: str | None = None
    subscribe_url: str | None = msgspec.field(name="SubscribeURL", default=None)

    def text(self) -> bytes:
        """Return what is signed."""
        values: Mapping[str, Any] = msgspec.to_builtins(self)
        named = [(name, values.get(name)) for name in SIGNED[self.type]]
        return "".join(f"{name}\n{value}\n" for name, value in named if value is not None).encode("utf-8", "replace")


def server_of(topic_arn: str) -> str:
    """Return the URL of SNS in the region of a topic; RejectedCallback for an ARN that is not of a topic."""
    found = _TOPIC.fullmatch(topic_arn)
    if found is None:
        raise RejectedCallback("topic_arn is not the ARN of a topic, so no callback can be checked")
    return f"https://sns.{found[1]}.amazonaws.com{'.cn' if found[1].startswith('cn-') else ''}"


def read_message(callback: Callback, topic_arn: str, server: str) -> SnsMessage:
    """Return the message of this topic, not verified yet; its URLs are on this server."""
    try:
        message = msgspec.json.decode(callback.body, type=SnsMessage)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise RejectedCallback("the callback is not a message of SNS") from None
    if not is_secret(message.topic_arn, topic_arn):
        raise RejectedCallback("the message is of another topic")
    if not _is_on(server, message.certificate, _CERTIFICATE):
        raise RejectedCallback("the certificate is not on the server of SNS")
    if message.type == "SubscriptionConfirmation" and not _is_on(server, message.subscribe_url or "", _CONFIRMATION):
        raise RejectedCallback("the confirmation is not on the server of SNS")
    return message


def verify(message: SnsMessage, certificate: bytes, now: datetime) -> None:
    """Raise RejectedCallback unless the message is signed with the key of the certificate, and recent."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm  # noqa: PLC0415 - an extra
    from cryptography.hazmat.primitives.asymmetric import padding, rsa  # noqa: PLC0415 - the same
    from cryptography.hazmat.primitives.hashes import SHA1, SHA256  # noqa: PLC0415 - the same
    from cryptography.x509 import load_pem_x509_certificate  # noqa: PLC0415 - the same

    try:
        loaded = load_pem_x509_certificate(certificate)
        key = loaded.public_key()
        is_valid = loaded.not_valid_before_utc <= now.astimezone(UTC) <= loaded.not_valid_after_utc
        if not is_valid or not isinstance(key, rsa.RSAPublicKey):
            raise RejectedCallback("the certificate of the message is not valid now")
        digest = SHA1() if message.signature_version == "1" else SHA256()  # noqa: S303 - the topic chooses; SNS offers only these
        key.verify(base64.b64decode(message.signature, validate=True), message.text(), padding.PKCS1v15(), digest)
    except (ValueError, binascii.Error, UnsupportedAlgorithm, InvalidSignature):
        raise RejectedCallback("the signature of the message is not that of SNS") from None
    check_age(_seconds(message.timestamp), now, OLDEST_MESSAGE)


def _is_on(server: str, url: str, path: re.Pattern[str]) -> bool:
    return url.startswith(f"{server}/") and path.fullmatch(url.removeprefix(server)) is not None


def _seconds(timestamp: str) -> int | None:
    try:
        return int(datetime.fromisoformat(timestamp).astimezone(UTC).timestamp())
    except (ValueError, OverflowError):
        return None
