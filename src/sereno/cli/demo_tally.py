"""What became of the demo's deliveries, as rows of a table."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sereno.cli.demo_post import EXPO, WORDS
from sereno.cli.output import Column, table
from sereno.store.post_rows import DeliveryLine

UNDER_WAY = ("pending", "sending")
# Each has a column; whatever else may become of a delivery is counted together.
STATES = ("sent", "delivered", "invalid", "skipped")


@dataclass(frozen=True, slots=True)
class PostLine:
    """How the deliveries of one kind of event fared on one channel."""

    event: str
    channel: str
    waiting: int
    states: Counter[str]
    retried: int

    @property
    def failed(self) -> int:
        return sum(count for state, count in self.states.items() if state not in (*STATES, *UNDER_WAY))


def _column(state: str) -> Column:
    return Column(state, lambda line: line.states[state] or "", "number")


COLUMNS = (
    Column("event", lambda line: line.event),
    Column("by", lambda line: line.channel),
    Column("what it shows", lambda line: WORDS.get((line.event, line.channel), ""), "wide"),
    *map(_column, STATES),
    Column("retried", lambda line: line.retried or "", "number"),
)
FAILED = Column("failed", lambda line: line.failed or "", "number")


def table_of(lines: Sequence[PostLine]) -> Any:
    """One more column when something has failed, which is no part of the show."""
    return table(lines, (*COLUMNS, FAILED) if any(line.failed for line in lines) else COLUMNS)


def tally(deliveries: Sequence[DeliveryLine]) -> list[PostLine]:
    """A line for each kind of event and channel that has any."""
    groups: dict[tuple[str, str], list[DeliveryLine]] = {}
    for each in deliveries:
        groups.setdefault((each.event or "", each.channel), []).append(each)
    return [_line(*place, groups[place]) for place in WORDS if place in groups]


def _line(event: str, channel: str, group: Sequence[DeliveryLine]) -> PostLine:
    states = Counter(each.state for each in group)
    retries = sum(max(0, each.attempts - 1) for each in group)
    return PostLine(event, channel, sum(states[state] for state in UNDER_WAY), states, retries)


def unsettled(deliveries: Sequence[DeliveryLine]) -> int:
    """How many will still be something else by themselves: also those whose receipt is not there yet."""
    return sum(each.state in UNDER_WAY or (each.state == "sent" and each.channel == EXPO) for each in deliveries)


def spoken_lines(lines: Sequence[PostLine]) -> Iterator[str]:
    """The table for a pipe."""
    for line in lines:
        parts = [f"{line.states[state]} {state}" for state in STATES if line.states[state]]
        parts += [f"{count} {name}" for name, count in (("retried", line.retried), ("failed", line.failed)) if count]
        if line.waiting:
            parts.append(f"{line.waiting} waiting")
        yield f"{line.event} by {line.channel}: {', '.join(parts)}"


def why_skipped(deliveries: Sequence[DeliveryLine]) -> str:
    """The reasons for which something was not sent; empty without any."""
    # Behind the colon is what a provider said of one address.
    reasons = Counter((each.reason or "").partition(":")[0] for each in deliveries if each.state == "skipped")
    if not reasons:
        return ""
    words = ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
    return f"Skipped: {words}."


def example(deliveries: Sequence[DeliveryLine]) -> DeliveryLine | None:
    """One worth looking at: a push to a phone that is gone, or any that was not sent, or any at all."""
    for state in ("invalid", "skipped"):
        for each in deliveries:
            if each.state == state and each.event == "order.ready":
                return each
    return deliveries[0] if deliveries else None
