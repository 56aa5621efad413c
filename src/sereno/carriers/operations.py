"""Operator actions on carried queues: how many of the new jobs the carrier gets, and giving up a carrier."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.carriers import store
from sereno.database.statement import Operation
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.jobs.queries.carriers import CarrierLine, list_carriers
from sereno.text import check_text

# Per cent of new jobs that the carrier of a queue gets without a change.
ALL = 100
# Queues that an error message names.
NAMED = 8


@dataclass(frozen=True, slots=True)
class ShareChange:
    """A change of the share, in per cent. `recovered`: jobs that came back to PostgreSQL. `carrier`: as reported."""

    queue: str
    before: int
    share: int
    recovered: int
    carrier: CarrierLine | None

    @property
    def is_changed(self) -> bool:
        return self.before != self.share


def set_share(
    queue: str,
    share: int,
    *,
    declared: Collection[str] = (),
    recover: bool = False,
    dry_run: bool = False,
    actor: str | None = None,
) -> Operation[ShareChange]:
    """Give this share of new jobs to the carrier. Raises ConfigurationError for a queue without one.

    `declared`: carried queues of the application, if it is known. `recover`: give up the carrier: jobs on their way
    there become ready in PostgreSQL. `dry_run`: change nothing.
    """
    check_text("queue", queue)
    if not 0 <= share <= ALL:
        raise InvalidArguments(f"share {share!r:.20} is not possible: from 0 to {ALL} per cent")
    if recover and share:
        raise InvalidArguments("recover gives up the carrier: the share has to be 0")
    lines = {line.queue: line for line in (yield from list_carriers())}
    known = (yield from store.shares()) if queue in lines or queue in declared else None
    if known is None:
        raise ConfigurationError(_unknown(queue, sorted({*lines, *declared})))
    before = known.get(queue, ALL)
    change = ShareChange(queue, before, share, 0, lines.get(queue))
    if dry_run or not (recover or change.is_changed):
        return change
    yield from store.set_share(queue, share)
    recovered = (yield from store.return_batches(queue)) if recover else 0
    detail = {"before": before, "share": share} | ({"recovered": recovered} if recover else {})
    yield from audit.audit(actor or default_actor(), "queue.carry", f"queue {queue}", detail)
    return ShareChange(queue, before, share, recovered, lines.get(queue))


def _unknown(queue: str, names: Sequence[str]) -> str:
    text = f"the queue {queue!r:.80} has no carrier"
    near = get_close_matches(queue, names, 1)
    if near:
        return f"{text}: did you mean {near[0]}?"
    if names:
        more = ", …" if len(names) > NAMED else ""
        return f"{text}; carried queues: {', '.join(names[:NAMED])}{more}"
    return (
        f'{text}: declare one with app.queue("{queue:.80}", carrier=JetStream(…)) or the setting carriers, and name '
        "the application with -a, or start a worker of the queue"
    )
