"""One pass over due schedules, as one transaction: lock, decide, write.

Most rows fire one instant, in time, and move to the next: the common path looks the next instant up in a cache, and one
statement does the rest. Rows that are late, held, limited, keyed or broken take the careful path.
"""

import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import psycopg

from sereno.database.connect import TOO_LARGE
from sereno.database.statement import Operation
from sereno.errors import DatabaseUnavailable, InvalidSchedule
from sereno.jobs import transitions
from sereno.schedules import tick as ticks
from sereno.schedules.fire_job import fire_job
from sereno.schedules.firing import ON_TIME, SECOND, DueSchedule, FirePlan, PlannedFire, plan
from sereno.schedules.rules.instants import InstantRule, compile_text

# Rows per transaction; a larger backlog takes several.
BATCH = 2000
# Entries in the cache of next instants. A million schedules share a few thousand.
REMEMBERED = 200_000
# Number of lateness buckets; the last one holds everything later than the others.
BUCKETS = 40
# Fires per pass on the careful path: catching up may mean thousands for a single row.
MOST_FIRES = 5000
# How long a pass waits for unique keys that another open transaction holds, in seconds: for all of its rows together,
# then for each alone. After MOST_TIMEOUTS timeouts, the remaining rows are left to another pass.
TIMEOUT, TIMEOUT_EACH, MOST_TIMEOUTS = 0.1, 0.02, 10


@dataclass
class TickResult:
    """The result of a pass. `latest`: lateness of the latest fire in seconds; `parked`: (key, reason)."""

    now: int = 0
    taken: int = 0
    fires: int = 0
    skips: int = 0
    latest: float = 0.0
    parked: list[tuple[str, str]] = field(default_factory=list)
    runs_ended: int = 0
    # Rows locked but not changed, because another transaction holds their jobs.
    left: int = 0
    # The last instant that was taken: a full pass continues from here.
    reached: int = 0

    # More rows were due than one pass handles.
    more: bool = False

    def put_off(self, rows: Sequence[DueSchedule]) -> None:
        """Leave these rows to the next pass, which begins with them."""
        self.left += len(rows)
        self.more = True
        self.reached = min([self.reached, *(due.at for due in rows if not due.free)])

    def add(self, other: "TickResult") -> None:
        """Add the counts of another pass."""
        self.now = max(self.now, other.now)
        self.taken += other.taken
        self.left += other.left
        self.fires += other.fires
        self.skips += other.skips
        self.latest = max(self.latest, other.latest)


@dataclass
class TickJobs:
    """The jobs that the fires of one schedule made: the last job, and which of them are new."""

    last: int | None = None
    fires: list[tuple[PlannedFire, bool]] = field(default_factory=list)

    @property
    def new(self) -> list[PlannedFire]:
        return [fire for fire, created in self.fires if created]


_NO_JOBS = TickJobs()

Planned: TypeAlias = tuple[DueSchedule, FirePlan]


class Ticker:
    """Fires due rows, with a cache of next instants. Several tickers coordinate only through row locks."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, int], int | None] = {}
        # Ids of the current pass, from which the row that broke it is found.
        self.taken: list[int] = []

    def tick(self, floor: int = 0, limit: int = BATCH, *, check_held: bool = True) -> Operation[TickResult]:
        """Fire one batch of due rows. Must run as one transaction."""
        self.taken = []
        rows, unreadable, now = yield from ticks.take(floor, limit, check_held=check_held)
        self.taken = [due.id for due in rows]
        done = TickResult(
            now, len(rows) + len(unreadable), reached=max((due.at for due in rows if not due.free), default=0)
        )
        done.parked = yield from ticks.park([(number, f"it cannot be read: {why}") for number, why in unreadable])
        yield from _mark_busy(rows)
        common: list[ticks.FiredRow] = []
        special: list[DueSchedule] = []
        for due in rows:
            fired = self._common(due, now)
            if fired is None:
                special.append(due)
            else:
                common.append(fired)
                done.latest = max(done.latest, (now - due.at) / SECOND)
        if common:
            done.fires += yield from ticks.fire(common)
        if special:
            yield from self._carefully(special, now, done)
        return done

    def refused(self, error: Exception) -> list[tuple[int, str]]:
        """Return the rows of the failed pass with the reason; the caller parks the row if there is only one."""
        return [(number, f"it could not be fired: {error}") for number in self.taken]

    def _common(self, due: DueSchedule, now: int) -> ticks.FiredRow | None:
        """Return the fire of a row of the common path, or None for the careful path."""
        if (
            not due.planned
            or due.free
            or due.busy
            or due.held is not None
            or due.job is not None
            or due.fires_left is not None
            or due.max_lateness is not None
            or (due.missed != "latest" and now - due.at > ON_TIME)
        ):
            return None
        base = due.at - due.shift
        known = (due.rule, base)
        try:
            following = self._next[known]
        except KeyError:
            following = self._remember(known)
        if following is None:
            return None
        following += due.shift
        if following <= now or (due.ends_at is not None and following > due.ends_at):
            return None
        return ticks.FiredRow(due.id, due.place, due.at, following, bucket(now - due.at))

    def _remember(self, known: tuple[str, int]) -> int | None:
        """Return the following instant and cache it; None sends the row to the careful path."""
        text, base = known
        try:
            rule = compile_text(text)
        except InvalidSchedule:
            return None
        following = None if rule.waits_for_end else rule.next(base, base)
        if not rule.uses_anchor:
            # An instant that counts from the schedule's own last one is shared with no other schedule.
            if len(self._next) >= REMEMBERED:
                self._next.clear()
            self._next[known] = following
        return following

    def _carefully(self, rows: Sequence[DueSchedule], now: int, done: TickResult) -> Operation[None]:
        plans: list[Planned] = []
        unfit: list[tuple[int, str]] = []
        fires = 0
        for number, due in enumerate(rows):
            if fires >= MOST_FIRES:
                done.put_off(rows[number:])
                break
            try:
                found = plan(due, compile_text(due.rule), now)
            except InvalidSchedule as error:
                unfit.append((due.id, str(error)))
            else:
                plans.append((due, found))
                fires += len(found.fires)
        done.parked += yield from ticks.park(unfit)
        free = yield from _cancel_previous(plans)
        done.left += len(plans) - len(free)
        plain: list[Planned] = []
        keyed: list[Planned] = []
        for due, found in free:
            (keyed if found.fires and due.job and due.job["unique_key"] else plain).append((due, found))
        if plain:
            yield from self._write(plain, now, done, TIMEOUT)
        if keyed:
            done.left += yield from self._write_keyed(keyed, now, done)

    def _write_keyed(self, plans: list[Planned], now: int, done: TickResult) -> Operation[int]:
        """Write all together; if another transaction holds a key, one by one. Return how many rows are left."""
        if (yield from self._try_to_write(plans, now, done, TIMEOUT)):
            return 0
        left = 0
        # Random order, so that the rows that time out are not always the same.
        for number, planned in enumerate(random.sample(plans, len(plans))):
            if not (yield from self._try_to_write([planned], now, done, TIMEOUT_EACH)):
                left += 1
            if left >= MOST_TIMEOUTS:
                return left + len(plans) - number - 1
        return left

    def _try_to_write(self, plans: Sequence[Planned], now: int, done: TickResult, timeout: float) -> Operation[bool]:
        yield from ticks.savepoint()
        if (yield from self._write(plans, now, done, timeout)):
            yield from ticks.keep_since_savepoint()
            return True
        yield from ticks.undo_since_savepoint()
        return False

    def _write(self, plans: Sequence[Planned], now: int, done: TickResult, timeout: float) -> Operation[bool]:
        """Write fires, jobs and new states. Return False if another transaction holds a unique key."""
        fresh = yield from ticks.record(_records(plans))
        made = yield from self._make_jobs(plans, fresh, now, timeout)
        if made is None:
            return False
        yield from ticks.advance([_row(due, found, made.get(due.id, _NO_JOBS), now) for due, found in plans])
        for due, found in plans:
            done.skips += sum(skip.count for skip in found.skips)
            for fire, created in made.get(due.id, _NO_JOBS).fires:
                done.fires += created
                done.skips += not created
                done.latest = max(done.latest, (now - fire.at) / SECOND)
        return True

    def _make_jobs(
        self, plans: Sequence[Planned], fresh: set[tuple[int, int]], now: int, timeout: float
    ) -> Operation[dict[int, "TickJobs"] | None]:
        """Insert the jobs of newly recorded fires, by schedule; None if a unique key is in an open transaction."""
        wanted = [(due, fire) for due, found in plans for fire in found.fires if (due.id, fire.at) in fresh]
        if not wanted:
            return {}
        plain = [due.id for due, _ in wanted if due.job is None]
        details = (yield from ticks.details(plain)) if plain else {}
        rows = [fire_job(due.job or details[due.id], due.rule, fire.at - due.shift, now) for due, fire in wanted]
        made = yield from ticks.try_make_jobs(rows, timeout)
        if made is None:
            return None
        yield from ticks.link(
            [
                {"id": due.id, "planned": fire.at, "stands_for": fire.stands_for, "job_id": made_id, "created": created}
                for (due, fire), (made_id, created) in zip(wanted, made, strict=True)
            ]
        )
        by_schedule: dict[int, TickJobs] = {}
        for (due, fire), (made_id, created) in zip(wanted, made, strict=True):
            of_schedule = by_schedule.setdefault(due.id, TickJobs())
            of_schedule.last = made_id
            of_schedule.fires.append((fire, created))
        return by_schedule


def _mark_busy(rows: Sequence[DueSchedule]) -> Operation[None]:
    """Mark the rows that have a run under way, where their overlap policy needs it."""
    ids = [due.id for due in rows if due.overlap != "allow"]
    if not ids:
        return
    busy = yield from ticks.busy(ids)
    for due in rows:
        due.busy = due.id in busy


def is_a_rows_fault(error: Exception) -> bool:
    """Return whether the contents of a row may be the cause; errors of server, table, privilege or index are not."""
    others = (DatabaseUnavailable, psycopg.OperationalError, psycopg.ProgrammingError, psycopg.InternalError)
    return isinstance(error, TOO_LARGE) or not isinstance(error, others)


def passes(ticker: Ticker) -> Generator[Operation[Any], Any, TickResult]:
    """Yield passes until everything due now has fired, each a transaction of its own; used without a scheduler.

    A row that cannot be written is found by firing the rows of its pass one by one, and parked.
    """
    total, began, single = TickResult(), 0, 0
    total.runs_ended = yield ticks.end_all_runs()
    while True:
        limit = 1 if single else BATCH
        try:
            done: TickResult = yield ticker.tick(limit=limit)
        except Exception as error:
            if not is_a_rows_fault(error) or not ticker.taken:
                raise
            if limit > 1:
                single = len(ticker.taken)
                continue
            parked = yield ticks.park(ticker.refused(error))
            if not parked:
                # The row can be neither fired nor parked: the caller must see the error.
                raise
            total.parked += parked
            continue
        began, single = began or done.now, max(0, single - 1)
        total.add(done)
        total.parked += done.parked
        # A schedule with an interval of milliseconds is always due again.
        if (done.taken < limit and not done.more) or (done.reached >= began) or done.left == done.taken:
            return total


def bucket(late: int) -> int:
    """Return the lateness bucket: bucket n holds fires that were up to 2^n ms late."""
    return min(BUCKETS, max(1, (max(0, late) // 1000).bit_length()))


def _records(plans: Sequence[Planned]) -> list[dict[str, Any]]:
    fires = [(due.id, fire.at, fire.stands_for, None) for due, decided in plans for fire in decided.fires]
    skips = [(due.id, skip.at, skip.count, skip.reason) for due, decided in plans for skip in decided.skips]
    return [dict(zip(("id", "planned", "stands_for", "reason"), row, strict=True)) for row in (*fires, *skips)]


def _cancel_previous(plans: list[Planned]) -> Operation[list[Planned]]:
    """Cancel runs that the next one replaces. Return the plans without those whose runs other transactions lock."""
    cancelling = [due.id for due, found in plans if found.cancels_previous]
    if not cancelling:
        return plans
    runs = yield from ticks.lock_runs(cancelling)
    taken = {run.schedule for run in runs if not run.free}
    over = [run.job for run in runs if run.schedule not in taken]
    if over:
        yield from transitions.cancel(over, "the next run of its schedule was due")
    return [planned for planned in plans if planned[0].id not in taken]


def _row(due: DueSchedule, found: FirePlan, made: TickJobs, now: int) -> dict[str, Any]:
    """Return the new state of a schedule, in the form of the statement `advance`."""
    skipped = dict(due.skipped)
    for skip in found.skips:
        skipped[skip.reason] = skipped.get(skip.reason, 0) + skip.count
    duplicates = len(made.fires) - len(made.new)
    if duplicates:
        skipped["duplicate"] = skipped.get("duplicate", 0) + duplicates
    missed = sum(skip.count for skip in found.skips if skip.reason in ("missed", "late"))
    return {
        "id": due.id,
        "next": found.next if made.new else _unless_it_waits(due, found, now),
        "state": "finished" if found.finished else None,
        "last_planned": found.last,
        "fired": len(made.new),
        "missed": missed + sum(fire.stands_for - 1 for fire, _ in made.fires),
        "skipped": skipped,
        "job_id": made.last,
        "held": found.held.at if found.held else None,
        "held_for": found.held.stands_for if found.held else 1,
        # With no run under way and none started, nothing would release the held fire later.
        "held_free": found.held is not None and not due.busy and not made.new,
        "bucket": bucket(now - (made.new[-1].at if made.new else now)),
    }


def _unless_it_waits(due: DueSchedule, found: FirePlan, now: int) -> int | None:
    """Return the next instant. If it was to follow the end of a run, and no run started, count from now."""
    if found.next is not None or found.finished or not found.fires:
        return found.next
    rule: InstantRule = compile_text(due.rule)
    return rule.next(now, now) if rule.waits_for_end else None
