"""Statistics of notifications, counted in memory by the process that changes deliveries, one batch at a time."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

import msgspec

from sereno.telemetry.metrics import BUCKETS

# Error codes of providers: longest code in characters, and most codes per channel and account between two writes.
LONGEST_CODE = 60
MOST_CODES = 20
OTHER = "other"

# Outcomes of deliveries, and the tenant column that counts them. `tried`: first attempt given to a provider.
COLUMNS = {
    "matched": "matched",
    "pending": "eligible",
    "skipped": "skipped",
    "tried": "sent",
    "sent": "accepted",
    "delivered": "delivered",
    "read": "read",
    "failed": "failed",
    "invalid": "failed",
    "dead": "failed",
    "bounced": "failed",
    "expired": "failed",
}
# Reasons start with one of these; the rest names a row or quotes a provider, and is not counted separately.
REASONS = (
    "preference off",
    "condition",
    "not subscribed",
    "throttled",
    "no active address",
    "address unverified",
    "address invalid",
    "address unsubscribed",
    "address is gone",
    "no longer true",
    "its event is gone",
    "the recipient is gone",
    "covered by delivery",
)


class DeliveryChange(msgspec.Struct, array_like=True, gc=False):
    """A number of deliveries of one event type and tenant that reached a state; field order as in the statements."""

    channel: str
    event: str | None
    tenant: str
    state: str
    reason: str | None
    count: int


class ChannelTally(msgspec.Struct):
    """Counts of one channel and account. `receipts`: by time until the receipt."""

    sent: int = 0
    accepted: int = 0
    throttled: int = 0
    failed: int = 0
    unknown: int = 0
    receipts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    codes: dict[str, int] = msgspec.field(default_factory=Counter)

    def trouble(self, code: str, count: int = 1) -> None:
        """Count an error code; codes beyond MOST_CODES are counted together."""
        name = code[:LONGEST_CODE] or "none"
        if name not in self.codes and len(self.codes) >= MOST_CODES:
            name = OTHER
        self.codes[name] = self.codes.get(name, 0) + count

    def receipt(self, seconds: float, count: int = 1) -> None:
        self.receipts[bisect_left(BUCKETS, seconds)] += count


class DeliveryTally:
    """Changes of deliveries since the last `take`."""

    def __init__(self) -> None:
        # By event, channel, state and reason.
        self.states: dict[tuple[str, str, str, str], int] = {}
        # By tenant and channel: a count for each column.
        self.tenants: dict[tuple[str, str], dict[str, int]] = {}
        self.channels: dict[tuple[str, str], ChannelTally] = {}

    def __bool__(self) -> bool:
        return bool(self.states or self.channels)

    def count(self, changes: Iterable[DeliveryChange]) -> None:
        for change in changes:
            key = (change.event or "", change.channel, change.state, word_of(change.reason, change.state))
            self.states[key] = self.states.get(key, 0) + change.count
            column = COLUMNS.get(change.state)
            if column is not None:
                figures = self.tenants.setdefault((change.tenant, change.channel), {})
                figures[column] = figures.get(column, 0) + change.count

    def count_created(self, changes: Iterable[DeliveryChange]) -> None:
        """Count new deliveries as matched, and by their state."""
        for change in changes:
            whole = DeliveryChange(change.channel, change.event, change.tenant, "matched", None, change.count)
            self.count((whole, change))

    def channel(self, channel: str, account: str) -> ChannelTally:
        found = self.channels.get((channel, account))
        if found is None:
            found = self.channels[channel, account] = ChannelTally()
        return found

    def take(self) -> "DeliveryTally":
        """Return the counts and reset them."""
        taken = DeliveryTally()
        taken.states, taken.tenants, taken.channels = self.states, self.tenants, self.channels
        self.states, self.tenants, self.channels = {}, {}, {}
        return taken

    def add(self, other: "DeliveryTally") -> None:
        """Add the counts of another tally, for example after a failed write."""
        for key, count in other.states.items():
            self.states[key] = self.states.get(key, 0) + count
        for place, figures in other.tenants.items():
            mine = self.tenants.setdefault(place, {})
            for column, count in figures.items():
                mine[column] = mine.get(column, 0) + count
        for (channel, account), theirs in other.channels.items():
            ours = self.channel(channel, account)
            ours.sent, ours.accepted = ours.sent + theirs.sent, ours.accepted + theirs.accepted
            ours.throttled, ours.failed = ours.throttled + theirs.throttled, ours.failed + theirs.failed
            ours.unknown += theirs.unknown
            ours.receipts = [mine + their for mine, their in zip(ours.receipts, theirs.receipts, strict=True)]
            for code, count in theirs.codes.items():
                ours.trouble(code, count)


def word_of(reason: str | None, state: str) -> str:
    """Return the reason as one of a few fixed words; a reason may name a delivery or quote a provider."""
    if reason is None or state not in ("skipped", "expired", "failed"):
        return ""
    return next((word for word in REASONS if reason.startswith(word)), "" if state == "failed" else OTHER)
