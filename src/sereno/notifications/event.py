"""Kinds of events: what their payload is, by which channels they are told, and in which words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from sereno.channels.contract import EscalationStep
from sereno.database.json_values import stored
from sereno.duration import Duration, seconds
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.jobs.arguments import decode_model
from sereno.text import check_text

# A payload is a fact, not a file.
LARGEST_PAYLOAD = 64 * 1024

LONGEST_DIGEST_KEY = 500


class Recipient(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who is told something, as a template sees them.

    `unsubscribe_url`: where they say "no more of these", if the message may carry such a link.
    """

    key: str
    tenant: str | None = None
    locale: str | None = None
    unsubscribe_url: str | None = None


class Content(msgspec.Struct, frozen=True):
    """What is said. `html`: for channels that can show it. `options`: for one channel alone, such as a sound."""

    title: str
    body: str = ""
    html: str | None = None
    options: Mapping[str, Any] = {}


Template = Callable[[Any, Recipient], Content]
# Several facts in one message.
DigestTemplate = Callable[[Sequence[Any], Recipient], Content]


@dataclass(frozen=True)
class Digest:
    """Facts of one kind are gathered for so long and told in one message: `Digest("15m", key="restaurant")`.

    `key`: the field of the payload by which they belong together; without it, all of the kind do.
    """

    window: Duration
    key: str | None = None

    def __post_init__(self) -> None:
        if seconds(self.window) <= 0:
            raise ConfigurationError(f"Digest({self.window!r}): how long to gather, such as '15m'")


@dataclass(frozen=True)
class Throttle:
    """At most so many of this kind for one recipient and channel in a time; more leave `skipped: throttled`."""

    most: int
    per: Duration

    def __post_init__(self) -> None:
        if self.most < 1 or seconds(self.per) <= 0:
            raise ConfigurationError(f"Throttle({self.most!r}, per={self.per!r}): at least 1, in a time such as '1h'")


class EventDefinition:
    """One kind of event."""

    def __init__(
        self,
        name: str,
        payload: Any,
        *,
        channels: Sequence[str],
        category: str | None,
        critical: bool,
        opt_in: bool,
        ttl: float | None,
        steps: Sequence[EscalationStep] = (),
        throttle: Throttle | None = None,
        digest: Digest | None = None,
    ) -> None:
        if not name.replace(".", "").replace("_", "").replace("-", "").isalnum():
            raise ConfigurationError(f"{name!r} is no name for an event: letters, digits, '_', '-' and '.'")
        check_text("category", category)
        self.name = name
        self.channels = tuple(channels)
        self.category = category
        self.critical = critical
        self.opt_in = opt_in
        self.ttl = ttl
        self.steps = tuple(steps)
        self.throttle = throttle
        self.digest = digest
        self.templates: dict[str | None, Template] = {}
        self.digest_templates: dict[str | None, DigestTemplate] = {}
        try:
            self._decoder = msgspec.json.Decoder(payload, dec_hook=decode_model)
        except TypeError as error:
            raise ConfigurationError(f"event {name}: its payload cannot be stored: {error}") from None

    def encode(self, payload: Any) -> bytes:
        """Its JSON, checked against the declared type."""
        raw = stored(payload, self._refusal)
        if len(raw) > LARGEST_PAYLOAD:
            raise self._refusal(f"{len(raw):,} bytes of payload, the limit is {LARGEST_PAYLOAD:,}")
        self.decode(raw)
        if not raw.startswith(b"{"):
            raise self._refusal("the payload must be an object with named fields")
        return raw

    def decode(self, raw: msgspec.Raw | bytes) -> Any:
        try:
            return self._decoder.decode(raw)
        except Exception as error:  # noqa: BLE001 - a model's own validator may raise anything
            raise self._refusal(str(error)) from None

    def content(self, channel: str, raw: msgspec.Raw | bytes, recipient: Recipient) -> Content:
        """In the words of the channel's template, or of the one for all, or in the plainest words there are."""
        template = self.templates.get(channel) or self.templates.get(None)
        if template is not None:
            return template(self.decode(raw), recipient)
        return Content(self.name)

    def digest_key(self, raw: bytes) -> str | None:
        """What it is gathered with."""
        if self.digest is None:
            return None
        if self.digest.key is None:
            return self.name
        value = msgspec.json.decode(raw).get(self.digest.key)
        if isinstance(value, list | dict):
            raise self._refusal(f"it is gathered by {self.digest.key}, which is a text or a number, not {value!r:.60}")
        return f"{self.name}:{value}"[:LONGEST_DIGEST_KEY]

    def digest_content(self, channel: str, raws: Sequence[msgspec.Raw | bytes], recipient: Recipient) -> Content | None:
        """Of several, in the words of the template for that; None where there is none."""
        template = self.digest_templates.get(channel) or self.digest_templates.get(None)
        return None if template is None else template([self.decode(raw) for raw in raws], recipient)

    def _refusal(self, why: str) -> InvalidArguments:
        return InvalidArguments(f"event {self.name}: {why}")
