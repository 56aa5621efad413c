"""An event type as its recipients know it, and for how long its messages are collected for one of them."""

from collections.abc import Iterable, Sequence

import msgspec

from sereno.notifications.recipients.preference import PreferenceChoice

# Of the time after which a message expires or escalates: the most that a recipient can have it collected.
DEADLINE_SHARE = 0.5


class DigestWindow(msgspec.Struct, frozen=True):
    """The digest of an event type. `own`: seconds, as declared. `deadline`: when a message expires or escalates."""

    own: float
    deadline: float | None = None

    def seconds(self, choice: PreferenceChoice, *, critical: bool) -> float:
        """Return for how long messages are collected; 0: each is sent at once. The fan-out has the same in SQL."""
        if critical or choice.digest is None:
            return self.own
        if self.deadline is None:
            return choice.digest
        return min(choice.digest, max(self.own, self.deadline * DEADLINE_SHARE))


def digest_window(own: float | None, ttl: float | None, escalates_after: Iterable[float]) -> DigestWindow | None:
    """Return the digest of an event type with these options; None if it has none."""
    if own is None:
        return None
    times = [*escalates_after, *([] if ttl is None else [ttl])]
    return DigestWindow(own, min(times, default=None))


class MessageKind(msgspec.Struct, frozen=True, kw_only=True):
    """An event type as its recipients know it. `listed`: whether they see it in the preference centre."""

    name: str
    channels: Sequence[str]
    category: str | None = None
    critical: bool = False
    opt_in: bool = False
    digest: DigestWindow | None = None
    listed: bool = True
