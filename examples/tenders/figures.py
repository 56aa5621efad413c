"""How many pushes were sent and failed between two minutes, from sereno's figures of the channel."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sereno import Sereno
from sereno.notifications.deliveries.figures import LONGEST_MINUTES, channel_health

# Seconds by which a query may come later than its job was claimed, and still begin with the right minute.
MARGIN = 30.0
# Expo's code for a phone without the app.
GONE = "DeviceNotRegistered"


@dataclass
class PushCounts:
    """`sent`: accepted by Expo. `retryable`: tried, and sent again later. `failed` includes `invalidated`."""

    sent: int = 0
    retryable: int = 0
    failed: int = 0
    invalidated: int = 0
    receipts: int = 0

    def since(self, earlier: "PushCounts") -> "PushCounts":
        return PushCounts(
            sent=self.sent - earlier.sent,
            retryable=max(0, self.retryable - earlier.retryable),
            failed=self.failed - earlier.failed,
            invalidated=self.invalidated - earlier.invalidated,
            receipts=self.receipts - earlier.receipts,
        )


async def counts_between(app: Sereno, channel: str, start: datetime, end: datetime, now: datetime) -> PushCounts:
    """Return the counts of whole minutes. Figures are read from a minute to now, so they are a difference."""
    everything = await _counts_until_now(app, channel, now - start)
    return everything.since(await _counts_until_now(app, channel, now - end))


async def _counts_until_now(app: Sereno, channel: str, age: timedelta) -> PushCounts:
    span = min(age / timedelta(seconds=1) + MARGIN, LONGEST_MINUTES)
    counts = PushCounts()
    for health in await app.database.arun(channel_health(span, step=LONGEST_MINUTES, channel=channel)):
        counts.sent += health.accepted
        counts.failed += health.failed
        counts.retryable += sum(health.codes.values()) - health.failed
        counts.invalidated += health.codes.get(GONE, 0)
        counts.receipts += health.receipts
    return counts
