"""What is wrong with the carrier of a queue, for the doctor and the alerts."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from sereno.duration import duration_text
from sereno.jobs.queries.carriers import CarrierLine

# Parts of `max_bytes` in use above which a stream is almost full, and full for practical purposes.
ALMOST_FULL, FULL = 0.80, 0.95
# Seconds for which a message may wait in PostgreSQL to be published.
RELAY_LATE = 60.0
# Held messages that were delivered before: at least this many, and this part of all held ones.
REDELIVERED, REDELIVERED_PART = 10, 0.1


class CarrierFinding(NamedTuple):
    """One finding of the doctor, as DoctorCheck takes it."""

    name: str
    level: Literal["ok", "warn", "fail"]
    message: str
    remedy: str = ""


def carrier_findings(lines: Sequence[CarrierLine]) -> list[CarrierFinding]:
    """Return the findings about all carried queues; none for an installation without one."""
    found = [finding for line in lines for finding in _findings(line)]
    if lines and not found:
        queues = "1 carried queue" if len(lines) == 1 else f"{len(lines)} carried queues"
        found.append(CarrierFinding("carriers", "ok", f"{queues}, all reachable and on time"))
    return found


def _findings(line: CarrierLine) -> Iterator[CarrierFinding]:
    name, where = line.queue, f"{line.kind} at {line.address}"
    give_up = f"sereno queue carry {name} --to postgres --recover"
    if line.state == "away":
        since = (
            "never answered" if line.reached_seconds is None else f"is away for {duration_text(line.reached_seconds)}"
        )
        words = f"the carrier of queue {name!r} {since}: {line.error or where}"
        remedy = f"Start its servers; jobs run from PostgreSQL meanwhile. Give it up: {give_up}"
        yield CarrierFinding("carriers", "fail", words, remedy)
    elif line.state == "unknown":
        since = duration_text(line.reported_seconds)
        words = (
            f"no worker of the carried queue {name!r} has reported for {since}; {line.messages:,} messages were left"
        )
        yield CarrierFinding("carriers", "warn", words, f"Start one: sereno worker -q {name}")
    else:
        yield from _stream_findings(line)
    if line.relay_oldest_seconds is not None and line.relay_oldest_seconds > RELAY_LATE:
        since = duration_text(line.relay_oldest_seconds)
        words = f"{line.relay_jobs:,} jobs of queue {name!r} wait in PostgreSQL to be published, for {since}"
        yield CarrierFinding("relay", "fail", words, f"Check its carrier. Run them from PostgreSQL: {give_up}")


def _stream_findings(line: CarrierLine) -> Iterator[CarrierFinding]:
    name = line.queue
    if line.current_replicas < line.replicas:
        words = f"{line.current_replicas} of {line.replicas} replicas of queue {name!r} are up to date"
        yield CarrierFinding("carriers", "warn", words, f"Start the missing node of {line.address}.")
    used = usage(line)
    if used > ALMOST_FULL:
        words = f"the stream of queue {name!r} is {used:.0%} full; a full one refuses new jobs"
        remedy = f"Start more workers: sereno worker -q {name}. Or raise max_bytes of its carrier."
        yield CarrierFinding("carriers", "fail" if used > FULL else "warn", words, remedy)
    if is_redelivered_often(line):
        again = f"{line.redelivered_messages:,} of {line.held_messages:,} held messages"
        remedy = "Workers die or stall: check their logs, and `sereno error list`."
        yield CarrierFinding("carriers", "warn", f"{again} of queue {name!r} were delivered before", remedy)
    if not line.share and line.messages:
        words = f"no new job goes to the carrier of queue {name!r}, and {line.messages:,} messages are left there"
        yield CarrierFinding("carriers", "warn", words, f"Keep its workers running: sereno queue show {name}")


def usage(line: CarrierLine) -> float:
    """Return the part of `max_bytes` that is in use; 0 without a limit."""
    return line.bytes / line.max_bytes if line.max_bytes else 0.0


def is_redelivered_often(line: CarrierLine) -> bool:
    return line.redelivered_messages >= max(REDELIVERED, REDELIVERED_PART * line.held_messages)
