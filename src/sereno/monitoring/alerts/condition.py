"""Conditions that need an operator: what, since when, and the remedy."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

Level = Literal["warn", "bad"]
LEVELS: tuple[Level, ...] = get_args(Level)

# Kind -> sentence. Rules name the kinds; translations use the sentences as keys.
SENTENCES: Mapping[str, str] = {
    "schema.none": "The schema %(schema)s of sereno does not exist.",
    "schema.behind": "%(count)s migrations are not applied.",
    "worker.none": "No worker is alive.",
    "session.silent": "The leases of %(count)s sessions have expired, and no worker has recovered their jobs.",
    "queue.unserved": "The queue %(queue)s has %(ready)s ready jobs and no worker; the oldest waits for %(age)s.",
    "queue.late": "The queue %(queue)s is late: %(ready)s ready jobs, the oldest waits for %(age)s.",
    "task.unknown": "Jobs of the task %(task)s wait in the queue %(queue)s, and no live worker knows that task.",
    "job.dead": "Jobs of the task %(task)s died within the last hour: %(count)s.",
    "dependency.dead": "Jobs wait for the job %(job)s of the task %(task)s, dead for more than %(age)s: %(count)s.",
    "group.stalled": "The group %(group)s has %(count)s open jobs, and none has run or ended for more than %(age)s.",
    "requirement.unmet": "Jobs of %(task)s in the queue %(queue)s require what no live worker has: %(requires)s.",
    "order.blocked": "An order key is blocked by the dead job %(job)s.",
    "scheduler.none": "There are schedules, and no scheduler is alive to fire them.",
    "scheduler.behind": "The scheduler is behind: the oldest due schedule waits for %(age)s.",
    "schedule.missed": "The schedule %(schedule)s missed %(count)s fires, and they were dropped.",
    "schedule.parked": "The schedule %(schedule)s is parked: %(note)s",
    "schedule.failed": "The schedule %(schedule)s was disabled, because its runs failed: %(note)s",
    "channel.paused": "The channel %(channel)s is paused: %(reason)s",
    "channel.account": "The channel %(channel)s is paused for the account %(account)s: %(reason)s",
    "channel.failing": "The channel %(channel)s fails: %(failed)s of the last %(ended)s deliveries.",
    "tenant.paused": "The tenant %(tenant)s is paused: none of its jobs is started.",
    "limit.unknown": "Jobs wait for the limit %(limit)s, which no code declares.",
    "limit.closed": "Jobs wait for the limit %(limit)s, which is closed for more than %(age)s.",
    "snapshot.pinned": "A %(holder)s (%(name)s, %(detail)s) is open for %(age)s: vacuum cannot clean up behind it.",
    "clock.moved": "The clock is moved by %(age)s: this is for tests.",
    "notify.full": "PostgreSQL's notification queue is %(percent)s percent full.",
    "archive.unverified": "%(count)s files of the archive could not be written or verified. The first: %(error)s",
    "archive.behind": "The archive is %(age)s behind: old rows are not in verified files yet.",
    "carrier.away": "The carrier of the queue %(queue)s is away: %(error)s",
    "carrier.replicas": "The carrier of the queue %(queue)s has %(current)s of %(wanted)s replicas.",
    "carrier.late": "The carried queue %(queue)s is late: about %(jobs)s jobs, the oldest waits for %(age)s.",
    "carrier.full": "The stream of the queue %(queue)s is %(percent)s percent full; a full one refuses jobs.",
    "relay.late": "%(jobs)s jobs of the queue %(queue)s wait to be published, for %(age)s.",
    "log.lines": "%(count)s log lines within %(within)s: %(level_of_lines)s, %(event)s",
}
KINDS = tuple(SENTENCES)

# Characters of a name that a sentence shows.
MOST_NAME = 200
LONGEST_SUBJECT = 400


@dataclass(frozen=True, slots=True)
class AlertCondition:
    """One condition that needs attention. `words` is `sentence` with its `values` filled in."""

    kind: str
    subject: str
    level: Level
    words: str
    sentence: str
    values: dict[str, str | int]
    remedy: str
    since: datetime | None


def condition(
    kind: str,
    subject: str,
    level: Level,
    remedy: str,
    *,
    since: datetime | None = None,
    **values: str | int | None,
) -> AlertCondition:
    """Return a condition of a known kind; names are user input, so they are truncated and cleaned."""
    known = {name: clean(value) if isinstance(value, str) else value or 0 for name, value in values.items()}
    sentence = SENTENCES[kind]
    return AlertCondition(
        kind=kind,
        subject=clean(subject, LONGEST_SUBJECT),
        level=level,
        words=filled(sentence, known),
        sentence=sentence,
        values=known,
        remedy=clean(remedy, 500),
        since=since,
    )


def command(prefix: str, name: str) -> str:
    """Return a shell command; the name is quoted, so that it stays one argument."""
    return f"{prefix} {shlex.quote(clean(name))}"


def filled(sentence: str, values: Mapping[str, str | int]) -> str:
    """Return a sentence in any language with its values; numbers are grouped, and a missing value is an ellipsis."""
    texts = {name: f"{value:,}" if isinstance(value, int) else value for name, value in values.items()}
    return sentence % _LenientFormat(texts)


class _LenientFormat(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "…"


def clean(text: str, most: int = MOST_NAME) -> str:
    """Return one printable line: no control characters, no bidirectional marks, truncated to `most` characters."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text[: 2 * most])
    line = " ".join(printable.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def rank(level: str) -> int:
    """Return the severity of a level; worse is larger."""
    return LEVELS.index(level) if level in LEVELS else 0
