"""Kinds of events: what their payload is, by which channels they are told, and in which words."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from sereno.domain.arguments import decode_model
from sereno.domain.job import check_text
from sereno.domain.stored import stored
from sereno.errors import ConfigurationError, InvalidArguments

# A payload is a fact, not a file.
LARGEST_PAYLOAD = 64 * 1024

IN_APP = "in_app"


class Recipient(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who is told something, as a template sees them."""

    key: str
    tenant: str | None = None
    locale: str | None = None


class Content(msgspec.Struct, frozen=True):
    """What is said. `html`: for channels that can show it. `options`: for one channel alone, such as a sound."""

    title: str
    body: str = ""
    html: str | None = None
    options: Mapping[str, Any] = {}


Template = Callable[[Any, Recipient], Content]


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
        self.templates: dict[str | None, Template] = {}
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

    def _refusal(self, why: str) -> InvalidArguments:
        return InvalidArguments(f"event {self.name}: {why}")
