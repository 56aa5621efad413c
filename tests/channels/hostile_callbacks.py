"""Bodies of callbacks that are signed, and are not what the provider documents."""

import contextlib
from collections.abc import Callable, Sequence

import pytest

from sereno.channels.outcome import Receipt
from sereno.errors import RejectedCallback

HOSTILE_BODIES = (
    b"",
    b"null",
    b"0",
    b'"text"',
    b"{}",
    b"[]",
    b"[{}]",
    b"[null, 1, []]",
    b"\x00\xff\xfe",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"type": 1, "data": [], "event-data": [], "RecordType": {}, "Message": 1, "eventType": []}',
    b'[{"event": 5, "sg_message_id": {}}, {"event": "delivered", "sg_message_id": "\\u0000"}]',
    b'{"type": "email.delivered", "data": {"email_id": ["x"]}}',
    b'{"RecordType": "Bounce", "MessageID": 7, "Type": null, "Details": {}}',
    b'{"event-data": {"event": "failed", "severity": "permanent", "message": {"headers": {"message-id": "a b"}}}}',
    b'{"x": "' + b"a" * 1_000_000 + b'"}',
)


def check_hostile_bodies(subtests: pytest.Subtests, receive: Callable[[bytes], Sequence[Receipt]]) -> None:
    """Check that each body is rejected or has no receipts. `receive`: passes a body to the channel, signed."""
    for body in HOSTILE_BODIES:
        with subtests.test(body=body[:40]), contextlib.suppress(RejectedCallback):
            assert list(receive(body)) == []
