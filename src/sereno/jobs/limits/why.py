"""Explains why a job with limits is not running: the limit, its slot holders, the next start, the turn.

Limits, fair turns and orders are shared between tenants: a tenant's user sees how many other jobs there are, but not
which.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from sereno.bounded_count import BoundedCount
from sereno.database.statement import Operation
from sereno.duration import duration_text
from sereno.jobs.limits import why_queries as store
from sereno.jobs.limits.why_queries import LaneState, LimiterState, OrderState, SlotHolder
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries.rows import JobRow

# Durations below this many seconds are shown with tenths.
EXACT = 10.0


def waits(row: JobRow, tenant: str | None) -> Operation[tuple[list[str], list[str]]]:
    """Return what keeps a ready job from starting, most important first, and its place among similar jobs.

    `tenant`: of the reader; None shows data of all tenants.
    """
    names_others = tenant is None
    limiters = yield from store.limiters(row.id)
    if row.keys is None:
        return [*_closing(limiters), *_full(limiters, row, names_others=names_others)], []
    order = yield from store.order(row.id)
    named = yield from _named_jobs(order, tenant)
    lane = yield from store.lane(row.id)
    firm = [*_dead(order, named), *_unknown(limiters), *_closing(limiters)]
    if order is not None and order.head != row.id:
        return [*firm, _behind_head(order, named)], []
    blockers = [*firm, *_full(limiters, row, names_others=names_others)]
    return blockers, _place(lane, limiters, is_blocked=bool(blockers), names_others=names_others)


def holding(row: JobRow) -> Operation[list[str]]:
    """Return the limits that a running job holds, and which jobs wait for it."""
    limiters = yield from store.limiters(row.id)
    slots = [limiter for limiter in limiters if limiter.kind == "slots"]
    order = yield from store.order(row.id)
    return [
        *[f"It holds a slot of the limit {_name_and_key(limiter, row)}: {_in_use(limiter)}." for limiter in slots],
        *[_sharing(limiter) for limiter in slots if limiter.claimed > limiter.running],
        *_held_up(order),
    ]


def held_up(row: JobRow, tenant: str | None) -> Operation[list[str]]:
    """Return the order of a scheduled job: which jobs wait for it, and which it has to wait for."""
    order = yield from store.order(row.id)
    if order is None:
        return []
    named = yield from _named_jobs(order, tenant)
    first = [] if order.head == row.id else [_behind_head(order, named)]
    return [*_dead(order, named), *first, *_held_up(order)]


def _named_jobs(order: OrderState | None, tenant: str | None) -> Operation[set[int]]:
    """Return the jobs of an order that may be named; to a tenant's user, only those of the tenant."""
    named = set()
    for job_id in () if order is None else (order.head, order.dead):
        if job_id is None:
            continue
        found = None if tenant is None else (yield from job_queries.job_row(job_id))
        if tenant is None or (found is not None and found.tenant == tenant):
            named.add(job_id)
    return named


def moment(when: datetime | None) -> str:
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z") if when else "an unknown time"


def _unknown(limiters: Sequence[LimiterState]) -> Iterator[str]:
    for limiter in limiters:
        if limiter.kind == "unknown":
            yield (
                f"The limit {limiter.name} that it uses is not declared, so no job with it can start. "
                f"Start a worker with the code that declares it, or: sereno limit set {limiter.name} --slots N"
            )


def _closing(limiters: Sequence[LimiterState]) -> Iterator[str]:
    for limiter in limiters:
        if limiter.closed_until is not None:
            key = f" for the key {limiter.key!r}" if limiter.key else ""
            flag = f" --key {limiter.key}" if limiter.key else ""
            yield (
                f"The limit {limiter.name} is closed{key} until {moment(limiter.closed_until)}. "
                f"To open it now: sereno limit open {limiter.name}{flag}"
            )


def _full(limiters: Sequence[LimiterState], row: JobRow, *, names_others: bool) -> Iterator[str]:
    """Yield the full limits; the one that its lane waits for comes first."""
    for limiter in sorted(limiters, key=lambda limiter: not limiter.is_awaited):
        if limiter.closed_until is not None:
            continue
        if limiter.kind == "slots" and (limiter.is_awaited or limiter.running >= (limiter.slots or 0)):
            yield _slots(limiter, row, names_others=names_others)
        if limiter.kind == "rate" and (limiter.is_awaited or (limiter.tokens or 0.0) < _need(limiter)):
            yield _rate(limiter, row)


def _sharing(limiter: LimiterState) -> str:
    slots = "the slot" if limiter.running == 1 else f"the {limiter.running:,} slots"
    return (
        f"{limiter.claimed:,} jobs share {slots}: a worker claimed short jobs of the key together, "
        "and releases those that it cannot start within a second."
    )


def _slots(limiter: LimiterState, row: JobRow, *, names_others: bool) -> str:
    if not limiter.slots:
        remedy = f"To change it: sereno limit set {limiter.name} --slots N"
        return f"The limit {_name_and_key(limiter, row)} admits no jobs: it is 0. {remedy}"
    words = f"The limit {limiter.name} allows {limiter.slots:,} at once{_whom(limiter, row)}, and "
    if limiter.running >= limiter.slots and not names_others:
        return f"{words}{'another is' if limiter.running == 1 else f'{limiter.running:,} others are'} running."
    if limiter.running >= limiter.slots:
        return f"{words}{limiter.running:,} {_are(limiter.running)} running: {_inside(limiter)}."
    soonest = f"within {duration_text(limiter.check_in)}" if limiter.check_in else "now"
    return f"{words}{limiter.running:,} {_are(limiter.running)} running: a worker will assign the free slots {soonest}."


def _rate(limiter: LimiterState, row: JobRow) -> str:
    # Waiting lanes are checked together: no job starts before that.
    next_in = max(_earliest(limiter, 1), (limiter.check_in or 0.0) if limiter.is_awaited else 0.0)
    cost = f" (this one takes {limiter.cost})" if limiter.cost != 1 else ""
    starts = "start" if limiter.units == 1 else "starts"
    allowed = f"{limiter.units:g} {starts} in {_span(limiter.period or 0.0)}{_whom(limiter, row)}{cost}"
    soonest = f"in {_span(next_in)}" if next_in else "now"
    left = f"{limiter.tokens or 0.0:.1f} are left"
    return f"The limit {limiter.name} allows {allowed}, and {left}: the next one may start {soonest}."


def _earliest(limiter: LimiterState, jobs: int) -> float:
    """Return the seconds until `jobs` jobs like this one can have started, if they get all tokens."""
    missing = _need(limiter) * jobs - (limiter.tokens or 0.0)
    return max(0.0, missing * (limiter.period or 0.0) / (limiter.units or 1.0))


def _place(
    lane: LaneState | None, limiters: Sequence[LimiterState], *, is_blocked: bool, names_others: bool
) -> list[str]:
    if lane is None:
        return []
    sentences = []
    if lane.ahead.value:
        jobs = "job with the same keys is" if lane.ahead.value == 1 else "jobs with the same keys are"
        waits = [_earliest(limiter, lane.ahead.value + 1) for limiter in limiters if limiter.kind == "rate"]
        rated = f", so it starts in {_span(max(waits))} at the earliest" if any(waits) else ""
        sentences.append(f"{lane.ahead} {jobs} ahead of it{rated}.")
    if lane.fair is not None:
        # With no key in front and no blocker, the turn explains nothing.
        sentences += (
            [_turn(lane, names_others=names_others)] if is_blocked or sentences or lane.keys_ahead.value else []
        )
    elif lane.lanes_ahead.value:
        others = "Another key waits" if lane.lanes_ahead.value == 1 else f"{lane.lanes_ahead} other keys wait"
        sentences.append(f"{others} for the same limit in front of it.")
    return sentences


def _turn(lane: LaneState, *, names_others: bool) -> str:
    words = f"It takes turns by its fair key {lane.fair!r} (weight {lane.weight:g})"
    if not lane.keys_ahead.value:
        return f"{words}, which is next."
    keys = "1 other key is" if lane.keys_ahead.value == 1 else f"{lane.keys_ahead} other keys are"
    following = f", the next is {lane.next_key!r}" if names_others else ""
    return f"{words}: {keys} in front of it by turn{following}."


def _dead(order: OrderState | None, named: Collection[int]) -> Iterator[str]:
    if order is None or order.dead is None:
        return
    if order.dead not in named:
        yield (
            f"A dead letter that you may not see blocks its order key {order.key!r}: "
            "no job of the key runs until an operator retries or deletes it."
        )
    else:
        yield (
            f"The dead letter {order.dead} (task {order.dead_task}) blocks its order key {order.key!r}: "
            f"no job of the key runs until it is retried or deleted. To retry it: sereno job retry {order.dead}. "
            f"To delete it: sereno job delete {order.dead}"
        )


def _behind_head(order: OrderState, named: Collection[int]) -> str:
    before = "1 job is" if order.before.value == 1 else f"{order.before} jobs are"
    if order.head not in named:
        return (
            f"It runs in order, and {before} before it with the order key {order.key!r}: "
            f"the first, which you may not see, is {order.head_state}."
        )
    if order.head_state == "running":
        doing = f"is running for {duration_text(order.head_seconds or 0.0)}, by worker session {order.head_session}."
    elif order.head_state == "scheduled":
        doing = f"is scheduled for {moment(order.head_run_at)}. To see why: sereno why {order.head}"
    else:
        doing = f"is ready. To see why it does not run: sereno why {order.head}"
    return (
        f"It runs in order, and {before} before it with the order key {order.key!r}: "
        f"the first, job {order.head} (task {order.head_task}), {doing}"
    )


def _held_up(order: OrderState | None) -> list[str]:
    if order is None or not order.behind.value:
        return []
    jobs = (
        "1 job with its order key waits" if order.behind.value == 1 else f"{order.behind} jobs with its order key wait"
    )
    return [f"{jobs} until it has ended ({order.key!r})."]


def _name_and_key(limiter: LimiterState, row: JobRow) -> str:
    return f"{limiter.name}{_whom(limiter, row)}"


def _whom(limiter: LimiterState, row: JobRow) -> str:
    if limiter.of_queue:
        return f" for its whole queue {row.queue!r}"
    return f" for the key {limiter.key!r}" if limiter.key else ""


def _in_use(limiter: LimiterState) -> str:
    return f"{limiter.running:,} of {limiter.slots:,} {_are(limiter.running)} taken"


def _inside(limiter: LimiterState) -> str:
    """Return the slot holders; those of one task and one worker are listed together."""
    first = limiter.first
    more = limiter.running - len(first)
    rest = f" and {BoundedCount.bounded(more)} more" if more else ""
    alike = len({(inside.task, inside.session) for inside in first}) == 1
    if alike and len(first) > 1:
        ids = [str(inside.id) for inside in first]
        listed = ", ".join(ids) if more else f"{', '.join(ids[:-1])} and {ids[-1]}"
        return f"jobs {listed}{rest} ({_life(first[0])})"
    return ", ".join(f"job {inside.id} ({_life(inside)})" for inside in first) + rest


def _life(inside: SlotHolder) -> str:
    return f"task {inside.task}, running for {duration_text(inside.seconds)}, worker session {inside.session}"


def _need(limiter: LimiterState) -> float:
    """Return the tokens that one job needs; never more than the bucket holds."""
    return min(float(limiter.cost), limiter.burst or 1.0)


def _span(length: float) -> str:
    """Return the duration like `duration_text`, with tenths below EXACT."""
    return f"{length:.1f} s" if 1 <= length < EXACT and length != round(length) else duration_text(length)


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
