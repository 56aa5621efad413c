"""One pass over what is due, as one transaction: take, decide, write.

Most rows fire one instant, in time, and go on to the next: for them the decision is one look into a table of known
instants, and the statement does the rest. Whatever is late, held, limited, keyed or broken takes the careful way.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sereno.domain.fire_job import fire_job
from sereno.domain.firing import ON_TIME, SECOND, Due, Fire, Plan, plan
from sereno.domain.instants import Rule, compile_text
from sereno.errors import InvalidSchedule
from sereno.store import jobs, ticks
from sereno.store.statement import Operation

# As many rows as a transaction should hold; a larger backlog takes several.
BATCH = 2000
# Known instants that are kept. A million schedules share a few thousand.
REMEMBERED = 200_000
# The last bucket of lateness is for whatever is later than everything else.
BUCKETS = 40


@dataclass
class Ticked:
    """What a pass did. `latest`: the latest fire, in seconds; `parked`: (key, why)."""

    now: int = 0
    taken: int = 0
    fires: int = 0
    skips: int = 0
    latest: float = 0.0
    parked: list[tuple[str, str]] = field(default_factory=list)
    # The last instant that was taken: a full pass goes on from here.
    reached: int = 0

    def add(self, other: "Ticked") -> None:
        """What another pass did."""
        self.now = max(self.now, other.now)
        self.taken += other.taken
        self.fires += other.fires
        self.skips += other.skips
        self.latest = max(self.latest, other.latest)


@dataclass
class Made:
    """What the fires of one schedule made: the last job, and which of the jobs are new."""

    last: int | None = None
    fires: list[tuple[Fire, bool]] = field(default_factory=list)

    @property
    def new(self) -> list[Fire]:
        return [fire for fire, created in self.fires if created]


_NOTHING = Made()


class Ticker:
    """Remembers what it worked out; several schedulers need not agree on anything but the rows."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, int], int | None] = {}
        # Ids of the pass under way, for whoever has to find the one that broke it.
        self.taken: list[int] = []

    def tick(self, floor: int = 0, limit: int = BATCH, *, look_at_held: bool = True) -> Operation[Ticked]:
        """To be run as one transaction."""
        self.taken = []
        rows, now = yield from ticks.take(floor, limit, look_at_held=look_at_held)
        self.taken = [due.id for due in rows]
        done = Ticked(now, len(rows), reached=max((due.at for due in rows if not due.free), default=0))
        common: list[ticks.Fired] = []
        special: list[Due] = []
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

    def _common(self, due: Due, now: int) -> ticks.Fired | None:
        """A fire that needs no closer look."""
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
        return ticks.Fired(due.id, due.place, due.at, following, bucket(now - due.at))

    def _remember(self, known: tuple[str, int]) -> int | None:
        """The instant after this one; None when it takes a closer look."""
        if len(self._next) >= REMEMBERED:
            self._next.clear()
        text, base = known
        try:
            rule = compile_text(text)
        except InvalidSchedule:
            following = None
        else:
            following = None if rule.waits_for_end else rule.next(base, base)
        self._next[known] = following
        return following

    def _carefully(self, rows: Sequence[Due], now: int, done: Ticked) -> Operation[None]:
        plans: list[tuple[Due, Plan]] = []
        for due in rows:
            try:
                plans.append((due, plan(due, compile_text(due.rule), now)))
            except InvalidSchedule as error:
                keys = yield from ticks.park([due.id], str(error))
                done.parked += [(key, str(error)) for key in keys]
        fresh = yield from ticks.record(_records(plans))
        made = yield from self._make_jobs(plans, fresh, now)
        yield from _cancel_previous([due.id for due, found in plans if found.cancels_previous])
        if plans:
            yield from ticks.advance([_row(due, found, made.get(due.id, _NOTHING), now) for due, found in plans])
        for due, found in plans:
            done.skips += sum(skip.count for skip in found.skips)
            for fire, created in made.get(due.id, _NOTHING).fires:
                done.fires += created
                done.skips += not created
                done.latest = max(done.latest, (now - fire.at) / SECOND)

    def _make_jobs(
        self, plans: Sequence[tuple[Due, Plan]], fresh: set[tuple[int, int]], now: int
    ) -> Operation[dict[int, "Made"]]:
        """The jobs of the fires that are ours, by schedule."""
        wanted = [(due, fire) for due, found in plans for fire in found.fires if (due.id, fire.at) in fresh]
        if not wanted:
            return {}
        plain = [due.id for due, _ in wanted if due.job is None]
        details = (yield from ticks.details(plain)) if plain else {}
        rows = [fire_job(due.job or details[due.id], due.rule, fire.at - due.shift, now) for due, fire in wanted]
        made = yield from ticks.make_jobs(rows)
        yield from ticks.link(
            [
                {"id": due.id, "planned": fire.at, "stands_for": fire.stands_for, "job_id": made_id, "created": created}
                for (due, fire), (made_id, created) in zip(wanted, made, strict=True)
            ]
        )
        answers: dict[int, Made] = {}
        for (due, fire), (made_id, created) in zip(wanted, made, strict=True):
            of_schedule = answers.setdefault(due.id, Made())
            of_schedule.last = made_id
            of_schedule.fires.append((fire, created))
        return answers


def bucket(late: int) -> int:
    """Bucket n holds fires that were up to 2^n ms late."""
    return min(BUCKETS, max(1, (max(0, late) // 1000).bit_length()))


def _records(plans: Sequence[tuple[Due, Plan]]) -> list[dict[str, Any]]:
    fires = [(due.id, fire.at, fire.stands_for, None) for due, decided in plans for fire in decided.fires]
    skips = [(due.id, skip.at, skip.count, skip.reason) for due, decided in plans for skip in decided.skips]
    return [dict(zip(("id", "planned", "stands_for", "reason"), row, strict=True)) for row in (*fires, *skips)]


def _cancel_previous(schedules: Sequence[int]) -> Operation[None]:
    if not schedules:
        return
    live = yield from ticks.live_jobs(schedules)
    if live:
        yield from jobs.cancel(live, "the next run of its schedule was due")


def _row(due: Due, found: Plan, made: Made, now: int) -> dict[str, Any]:
    """How a schedule stands afterwards."""
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
        # With no run under way and none begun, it waits for nothing.
        "held_free": found.held is not None and not due.busy and not made.new,
        "bucket": bucket(now - (made.new[-1].at if made.new else now)),
    }


def _unless_it_waits(due: Due, found: Plan, now: int) -> int | None:
    """The next instant; where the end of a run was to decide, and no run of ours began, it counts from now."""
    if found.next is not None or found.finished or not found.fires:
        return found.next
    rule: Rule = compile_text(due.rule)
    return rule.next(now, now) if rule.waits_for_end else None
