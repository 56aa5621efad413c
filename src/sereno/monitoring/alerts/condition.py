"""Something in the house that needs a person: what, since when, and what helps."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, get_args

Level = Literal["warn", "bad"]
LEVELS: tuple[Level, ...] = get_args(Level)

# Every kind, with what it says. Rules name them, and translations know their sentences.
SAID: Mapping[str, str] = {
    "schema.none": "There is no schema %(schema)s of sereno.",
    "schema.behind": "%(count)s migrations are not applied.",
    "worker.none": "No worker is alive.",
    "session.silent": "%(count)s sessions let their lease run out, and nobody has taken their jobs back.",
    "queue.unserved": "The queue %(queue)s has %(ready)s ready jobs and no worker; the oldest waits for %(age)s.",
    "queue.late": "The queue %(queue)s is late: %(ready)s ready jobs, the oldest waits for %(age)s.",
    "task.unknown": "Jobs of the task %(task)s wait in the queue %(queue)s, and no live worker knows that task.",
    "job.dead": "Jobs of the task %(task)s died within the last hour: %(count)s.",
    "order.blocked": "An order key stands still behind the dead job %(job)s.",
    "scheduler.none": "There are schedules, and nobody fires them.",
    "scheduler.behind": "The scheduler is behind: the oldest due schedule waits for %(age)s.",
    "schedule.missed": "The schedule %(schedule)s missed %(count)s fires, and they were dropped.",
    "schedule.parked": "The schedule %(schedule)s is parked: %(note)s",
    "schedule.failed": "The schedule %(schedule)s was disabled, because its runs failed: %(note)s",
    "channel.paused": "The channel %(channel)s is paused: %(reason)s",
    "channel.account": "The channel %(channel)s is paused for the account %(account)s: %(reason)s",
    "channel.failing": "The channel %(channel)s fails: %(failed)s of the last %(ended)s deliveries.",
    "tenant.paused": "The tenant %(tenant)s is paused: none of its jobs is started.",
    "limit.unknown": "Jobs wait for the limit %(limit)s, which nobody has declared.",
    "limit.closed": "Jobs wait for the limit %(limit)s, which is closed for more than %(age)s.",
    "snapshot.pinned": "A %(holder)s (%(name)s, %(detail)s) is open for %(age)s: vacuum cannot clean up behind it.",
    "clock.moved": "The clock is moved by %(age)s: this is meant for tests.",
    "notify.full": "PostgreSQL's notification queue is %(percent)s percent full.",
    "archive.unverified": "%(count)s files of the archive could not be written or verified. The first: %(error)s",
    "archive.behind": "The archive is behind by %(age)s: what is old is not in verified files yet.",
    "log.lines": "%(count)s log lines within %(within)s: %(level_of_lines)s, %(event)s",
}
KINDS = tuple(SAID)

# Of a name in a sentence, so many characters are said.
MOST_NAME = 200
LONGEST_SUBJECT = 400


@dataclass(frozen=True, slots=True)
class AlertCondition:
    """One thing that needs a person. `said`: an English sentence with places; `values`: what belongs into them."""

    kind: str
    subject: str
    level: Level
    said: str
    values: dict[str, str | int] = field(default_factory=dict)
    remedy: str = ""
    since: datetime | None = None

    @property
    def words(self) -> str:
        """The sentence, filled in."""
        return filled(self.said, self.values)


def condition(
    kind: str,
    subject: str,
    level: Level,
    remedy: str,
    *,
    since: datetime | None = None,
    **values: str | int | None,
) -> AlertCondition:
    """One of a kind that is known; names are cut and cleaned, whoever chose them."""
    known = {name: clean(value) if isinstance(value, str) else value or 0 for name, value in values.items()}
    return AlertCondition(kind, clean(subject, LONGEST_SUBJECT), level, SAID[kind], known, clean(remedy, 500), since)


def command(words: str, name: str) -> str:
    """What to type; a name that holds more than a name stays one argument."""
    return f"{words} {shlex.quote(clean(name))}"


def filled(said: str, values: Mapping[str, str | int]) -> str:
    """A sentence in any language with its values; numbers are grouped, and what is missing is an ellipsis."""
    said_values = {name: f"{value:,}" if isinstance(value, int) else value for name, value in values.items()}
    return said % _LenientFormat(said_values)


class _LenientFormat(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "…"


def clean(text: str, most: int = MOST_NAME) -> str:
    """As one line that prints: no control characters, nothing that turns text around, not too long."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text[: 2 * most])
    line = " ".join(printable.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def rank(level: str) -> int:
    """Worse is larger."""
    return LEVELS.index(level) if level in LEVELS else 0
