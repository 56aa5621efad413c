"""Event types: their payload, channels, limits and templates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import msgspec

from sereno.channels.contract import EscalationStep
from sereno.database.json_values import stored
from sereno.duration import Duration, duration_text, seconds
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.jobs.arguments import decode_model
from sereno.jobs.task import check_options
from sereno.notifications.variants import Variants, variants
from sereno.text import check_text

# In bytes. Large enough for the facts of an event; files belong elsewhere.
LARGEST_PAYLOAD = 64 * 1024

LONGEST_DIGEST_KEY = 500


class Recipient(msgspec.Struct, frozen=True, kw_only=True):
    """A recipient of a notification, as a template sees it.

    `unsubscribe_url`: the one-click unsubscribe link, if the message may carry one. `preferences_url`: the link to the
    recipient's own page of the preference centre. `variant`: of the message, if the event type has variants.
    """

    key: str
    tenant: str | None = None
    locale: str | None = None
    unsubscribe_url: str | None = None
    preferences_url: str | None = None
    variant: str | None = None


class Content(msgspec.Struct, frozen=True):
    """The text of a message. `html`: for channels that support it. `options`: channel-specific, such as a sound."""

    title: str
    body: str = ""
    html: str | None = None
    options: Mapping[str, Any] = {}


Template = Callable[[Any, Recipient], Content]
# Renders several payloads into one message.
DigestTemplate = Callable[[Sequence[Any], Recipient], Content]


@dataclass(frozen=True)
class Digest:
    """Collect the events of a time window and send them as one message: `Digest("15m", key="restaurant")`.

    `key`: the payload field to group by; without it, all events of the type form one group.
    """

    window: Duration
    key: str | None = None

    def __post_init__(self) -> None:
        if seconds(self.window) <= 0:
            raise ConfigurationError(f"Digest({self.window!r}): the window must be longer than 0, such as '15m'")


@dataclass(frozen=True)
class Throttle:
    """Maximum number of events of this type per recipient and channel in a period; more are `skipped: throttled`."""

    most: int
    per: Duration

    def __post_init__(self) -> None:
        if self.most < 1 or seconds(self.per) <= 0:
            raise ConfigurationError(
                f"Throttle({self.most!r}, per={self.per!r}): use a count of at least 1 and a period such as '1h'"
            )


class EventOptions(TypedDict, total=False):
    """The options of an event type, declared once for `Sereno.event` and below; `Sereno.event` explains each."""

    category: str | None
    critical: bool
    opt_in: bool
    ttl: Duration | None
    throttle: Throttle | None
    digest: Digest | None
    listed: bool
    variants: Mapping[str, float] | None


class EventDefinition:
    """The declaration of one event type. `ttl`: in seconds."""

    def __init__(
        self,
        name: str,
        payload: Any,
        *,
        channels: Sequence[str],
        steps: Sequence[EscalationStep] = (),
        **options: Unpack[EventOptions],
    ) -> None:
        check_options("event", options, EventOptions)
        if not name.replace(".", "").replace("_", "").replace("-", "").isalnum():
            raise ConfigurationError(f"{name!r} is not a valid event name: use letters, digits, '_', '-' and '.'")
        category, ttl = options.get("category"), options.get("ttl")
        check_text("category", category)
        self.name = name
        self.channels = tuple(channels)
        self.steps = tuple(steps)
        self.category = category
        self.critical = options.get("critical", False)
        self.opt_in = options.get("opt_in", False)
        self.ttl = None if ttl is None else seconds(ttl)
        self.throttle = options.get("throttle")
        self.digest = options.get("digest")
        self._check_digest()
        self.listed = options.get("listed", True)
        self.variants = self._variants(options.get("variants"))
        self.templates: dict[str | None, Template] = {}
        # By channel and variant.
        self.variant_templates: dict[tuple[str | None, str], Template] = {}
        self.digest_templates: dict[str | None, DigestTemplate] = {}
        try:
            self._decoder = msgspec.json.Decoder(payload, dec_hook=decode_model)
        except TypeError as error:
            raise ConfigurationError(f"event {name}: its payload type cannot be stored: {error}") from None

    def encode(self, payload: Any) -> bytes:
        """Return the payload as JSON, checked against the declared type."""
        raw = stored(payload, self._refusal)
        if len(raw) > LARGEST_PAYLOAD:
            raise self._refusal(f"the payload has {len(raw):,} bytes, the limit is {LARGEST_PAYLOAD:,}")
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
        """Render with the template of the channel, else the default template, else the name of the event as title."""
        template = self.templates.get(channel) or self.templates.get(None)
        if template is not None:
            return template(self.decode(raw), recipient)
        return Content(self.name)

    def variant_template(self, channel: str, variant: str | None) -> Template | None:
        """Return the template of a variant, for the channel or for all; None if it has none of its own."""
        if variant is None:
            return None
        found = self.variant_templates
        return found.get((channel, variant)) or found.get((None, variant))

    def _check_digest(self) -> None:
        """Refuse a digest that collects messages until they have expired or escalated."""
        if self.digest is None:
            return
        window = seconds(self.digest.window)
        collects = f"event {self.name}: its digest collects messages for {duration_text(window)}"
        if self.ttl is not None and self.ttl <= window:
            raise ConfigurationError(f"{collects}, but they expire after {duration_text(self.ttl)}: none would be sent")
        first = min(self.steps, key=lambda step: step.after, default=None)
        if first is not None and first.after <= window:
            raise ConfigurationError(
                f"{collects}, but they escalate from {first.first} to {first.second} after "
                f"{duration_text(first.after)}, before {first.first} has sent: escalate later, or collect for less"
            )

    def _variants(self, weights: Mapping[str, float] | None) -> Variants | None:
        if weights is None:
            return None
        if self.digest is not None:
            raise ConfigurationError(f"event {self.name}: a digest has no variants: its message is of several events")
        return variants(self.name, weights)

    def digest_key(self, raw: bytes) -> str | None:
        """Return the key of the digest group, or None if the type has no digest."""
        if self.digest is None:
            return None
        if self.digest.key is None:
            return self.name
        value = msgspec.json.decode(raw).get(self.digest.key)
        if isinstance(value, list | dict):
            raise self._refusal(f"digest key {self.digest.key} must be a string or a number, not {value!r:.60}")
        return f"{self.name}:{value}"[:LONGEST_DIGEST_KEY]

    def digest_content(self, channel: str, raws: Sequence[msgspec.Raw | bytes], recipient: Recipient) -> Content | None:
        """Render several payloads with the digest template; None if there is none."""
        template = self.digest_templates.get(channel) or self.digest_templates.get(None)
        return None if template is None else template([self.decode(raw) for raw in raws], recipient)

    def _refusal(self, why: str) -> InvalidArguments:
        return InvalidArguments(f"event {self.name}: {why}")
