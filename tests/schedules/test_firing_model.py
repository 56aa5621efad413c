"""`firing.plan` against a model that walks from instant to instant and implements the docs literally.

Every instant from the due one to now must be fired, represented by another fire, skipped or held, exactly once.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

import pytest

from sereno.schedules.firing import COUNTED, DueSchedule, FirePlan, Overlap, PlannedFire, plan
from sereno.schedules.rules.instants import InstantRule, compile_rule
from sereno.schedules.rules.when import Cron, Daily, Every, Once, When
from sereno.zones import SECOND, instant, moment

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
START = instant(datetime(2026, 1, 1, tzinfo=UTC))
ZONES = ("UTC", "America/Sao_Paulo", "Europe/Riga", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kolkata")
OVERLAPS: tuple[Overlap, ...] = ("skip", "allow", "queue_one", "cancel_previous")
# Longer walks would only cost time.
LONGEST_WALK = 4000

CountedInstant = tuple[int, int]


@dataclass
class ModelPlan:
    """The model's plan: (instant, how many it stands for), skips with their reason, and the next instant."""

    fires: list[CountedInstant] = field(default_factory=list)
    skips: list[tuple[int, str, int]] = field(default_factory=list)
    held: CountedInstant | None = None
    next: int | None = None
    finished: bool = False
    cancels: bool = False


def walk_instants(due: DueSchedule, rule: InstantRule, now: int) -> list[int]:
    """Return every instant from the due one to now; for rules that count from the end of a run, only the due one."""
    until = now if due.ends_at is None else min(now, due.ends_at)
    found: list[int] = []
    at: int | None = due.at
    while at is not None and at <= until:
        found.append(at)
        if rule.waits_for_end:
            break
        following = rule.next(at - due.shift, at - due.shift)
        at = None if following is None else following + due.shift
    return found


def first_after(due: DueSchedule, rule: InstantRule, passed: list[int], now: int) -> int | None:
    """Return the first instant after now, found by walking."""
    at = passed[-1] if passed else due.at
    while at <= now and (due.ends_at is None or at <= due.ends_at):
        following = rule.next(at - due.shift, at - due.shift)
        if following is None:
            return None
        at = following + due.shift
    return None if due.ends_at is not None and at > due.ends_at else at


def apply_missed_policy(due: DueSchedule, passed: list[int], now: int, model: ModelPlan) -> list[CountedInstant]:
    """Apply the policy for missed instants as the docs describe it. Return what should run."""
    if not passed:
        return []
    newest = passed[-1]
    too_late = [at for at in passed if due.max_lateness is not None and now - at > round(due.max_lateness * SECOND)]
    if newest in too_late:
        model.skips.append((newest, "late", len(passed)))
        return []
    match due.missed:
        case "latest":
            return [(newest, len(passed))]
        case "skip":
            if due.max_lateness is None and now - newest > MINUTE:
                model.skips.append((newest, "missed", len(passed)))
                return []
            wanted = [newest]
        case "all":
            window = max(round(due.missed_window * SECOND), MINUTE)
            wanted = [at for at in passed if at not in too_late and now - at <= window][-due.missed_limit :]
    dropped = passed[: len(passed) - len(wanted)]
    if dropped:
        model.skips.append((dropped[-1], "missed", len(dropped)))
    return [(at, 1) for at in wanted]


def apply_overlap_policy(due: DueSchedule, wanted: list[CountedInstant], model: ModelPlan) -> None:
    """Apply the overlap policy, one fire after the other; the held fire is the first."""
    is_running, held = due.busy, None if due.held is None else (due.held, due.held_for)
    if due.overlap == "allow":
        model.fires = ([held] if held else []) + wanted
        return
    if held is not None and not is_running and not (due.overlap == "cancel_previous" and wanted):
        # The run that it waited for has ended.
        model.fires, held, is_running = [held], None, True
    for number, fire in enumerate(wanted):
        is_last = number == len(wanted) - 1
        if due.overlap == "cancel_previous" and not is_last:
            model.skips.append((fire[0], "superseded", fire[1]))
        elif due.overlap == "cancel_previous":
            if held is not None:
                model.skips.append((held[0], "superseded", held[1]))
                held = None
            if is_running:
                held, model.cancels = fire, True
            else:
                model.fires.append(fire)
        elif not is_running:
            model.fires.append(fire)
            is_running = True
        elif due.overlap == "queue_one" and held is None:
            held = fire
        else:
            model.skips.append((fire[0], "overlap", fire[1]))
    model.held = held


def apply_max_fires(due: DueSchedule, model: ModelPlan) -> None:
    """Apply `max_fires`, held fires included."""
    if due.fires_left is None:
        return
    wanted = [*model.fires, *([model.held] if model.held else [])]
    beyond = wanted[max(0, due.fires_left) :]
    if model.held in beyond:
        model.held, model.cancels = None, False
    model.fires = [fire for fire in model.fires if fire not in beyond]
    if beyond:
        model.skips.append((beyond[-1][0], "finished", sum(count for _, count in beyond)))
    if len(wanted) >= due.fires_left:
        model.next, model.finished = None, True


def model_plan(due: DueSchedule, rule: InstantRule, now: int) -> ModelPlan:
    passed = walk_instants(due, rule, now)
    model = ModelPlan(next=first_after(due, rule, passed, now))
    model.finished = model.next is None
    apply_overlap_policy(due, apply_missed_policy(due, passed, now, model), model)
    apply_max_fires(due, model)
    model.finished = model.finished and model.held is None
    if rule.waits_for_end and model.fires and not model.finished:
        model.next = None
    model.skips.sort()
    return model


def from_plan(found: FirePlan) -> ModelPlan:
    return ModelPlan(
        [(fire.at, fire.stands_for) for fire in found.fires],
        sorted((skip.at, skip.reason, skip.count) for skip in found.skips),
        None if found.held is None else (found.held.at, found.held.stands_for),
        found.next,
        found.finished,
        found.cancels_previous,
    )


def random_rule(chance: Random) -> tuple[When, int]:
    """Return a rule and the approximate distance of its instants."""
    tz = chance.choice(ZONES)
    minutes = chance.choice([1, 5, 7, 15, 45, 60, 90, 1440])
    match chance.randrange(8):
        case 0 | 1:
            return Every(minutes * 60), minutes * MINUTE
        case 2:
            return Every(minutes * 60, count_from="end"), minutes * MINUTE
        case 3:
            return Every(minutes * 60, count_from="clock", tz=tz), minutes * MINUTE
        case 4:
            return Daily(f"{chance.randrange(24):02}:{chance.choice([0, 30]):02}", tz=tz), DAY
        case 5:
            return Cron(f"*/{chance.choice([1, 5, 20])} * * * *", tz=tz), 10 * MINUTE
        case 6:
            return Cron(f"{chance.randrange(60)} {chance.randrange(24)} * * 1-5", tz=tz), DAY
        case _:
            return Once(moment(START + chance.randrange(DAY))), HOUR


def random_case(chance: Random) -> tuple[When, DueSchedule, int]:
    """Return a due row, and a now some instants later."""
    when, apart_by = random_rule(chance)
    rule = compile_rule(when)
    shift = 0 if isinstance(when, Once) or chance.random() < 0.5 else chance.randrange(20 * MINUTE)
    base = rule.next(START + chance.randrange(300 * DAY), START) if not isinstance(when, Once) else rule.next(0, 0)
    assert base is not None
    at = base + shift
    passed = chance.choice([0, 0, 0, 1, 2, 3, 10, 100, 1000])
    late = chance.choice([0, 1, SECOND, MINUTE, MINUTE + 1, chance.randrange(apart_by)])
    now = at + min(passed * apart_by, 60 * DAY) + late
    overlap: Overlap = chance.choice(OVERLAPS)
    # A run is under way only where that matters; the held fire was planned before.
    busy = overlap != "allow" and chance.random() < 0.5
    held = at - chance.randrange(1, DAY) if chance.random() < 0.3 else None
    due = DueSchedule(
        id=1,
        place="",
        rule="",
        at=at,
        free=False,
        planned=True,
        shift=shift,
        starts_at=None,
        ends_at=at + chance.randrange(-HOUR, 3 * apart_by) if chance.random() < 0.2 else None,
        fires_left=chance.choice([-1, 0, 1, 1, 2, 3, 50]) if chance.random() < 0.3 else None,
        missed=chance.choice(["skip", "latest", "all"]),
        missed_limit=chance.choice([1, 2, 10, 100, 1000]),
        missed_window=chance.choice([0.0, 30.0, 600.0, 86400.0, 30 * 86400.0]),
        max_lateness=chance.choice([0.0, 1.0, 60.0, 3600.5, 86400.0]) if chance.random() < 0.3 else None,
        overlap=overlap,
        busy=busy,
        held=held,
        held_for=chance.randrange(1, 5),
        next_at=at,
        last_base=None,
        skipped={},
    )
    return when, due, now


def assert_each_instant_once(due: DueSchedule, passed: int, model: ModelPlan) -> None:
    """Check that each instant is in exactly one place, the held fire included."""
    waited = due.held_for if due.held is not None else 0
    total = sum(count for _, count in model.fires) + sum(count for _, _, count in model.skips)
    total += model.held[1] if model.held else 0
    assert total == passed + waited


@pytest.mark.parametrize(
    "seed",
    [
        0,
        pytest.param(1, marks=pytest.mark.slow),
        *(pytest.param(seed, marks=pytest.mark.storm) for seed in range(2, 8)),
    ],
)
def test_plan_agrees_with_the_model_and_loses_no_instant(seed: int) -> None:
    chance = Random(20261115 + seed)
    seen: Counter[str] = Counter()
    while seen["cases"] < 800:
        when, due, now = random_case(chance)
        rule = compile_rule(when)
        passed = walk_instants(due, rule, now)
        if len(passed) > LONGEST_WALK:
            continue
        expected, found = model_plan(due, rule, now), from_plan(plan(due, rule, now))
        assert found == expected, f"{when} {due} now {now}, {len(passed)} passed"
        assert_each_instant_once(due, len(passed), found)
        assert found.next is None or found.next > now
        seen["cases"] += 1
        seen.update(reason for _, reason, _ in found.skips)
        seen.update(what for what in ("held", "finished", "cancels") if getattr(found, what))
        seen["caught up"] += len(passed) > 1
    # Check that the cases cover every outcome often.
    ways = ("missed", "late", "overlap", "superseded", "finished", "held", "cancels", "caught up")
    assert all(seen[way] >= 10 for way in ways), seen


@pytest.mark.slow
def test_a_plan_without_a_next_instant_has_a_reason() -> None:
    chance = Random(4)
    reasons: Counter[str] = Counter()
    for _ in range(1000):
        when, due, now = random_case(chance)
        rule = compile_rule(when)
        found = plan(due, rule, now)
        if found.next is not None:
            assert not found.finished
            continue
        if found.held is not None:
            reasons["a fire waits for a run"] += 1
            assert not found.finished
        elif rule.waits_for_end and not found.finished:
            reasons["the end of the run decides"] += 1
            assert found.fires
        else:
            reasons["finished"] += 1
            assert found.finished
    assert len(reasons) == 3


def due_schedule(at: int, **changes: object) -> DueSchedule:
    fields: dict[str, object] = {
        "id": 1,
        "place": "",
        "rule": "",
        "at": at,
        "free": False,
        "planned": True,
        "shift": 0,
        "starts_at": None,
        "ends_at": None,
        "fires_left": None,
        "missed": "latest",
        "missed_limit": 100,
        "missed_window": 86400.0,
        "max_lateness": None,
        "overlap": "skip",
        "busy": False,
        "held": None,
        "held_for": 1,
        "next_at": at,
        "last_base": None,
        "skipped": {},
    }
    return DueSchedule(**(fields | changes))  # type: ignore[arg-type]  # each test sets the fields that it needs


def test_months_of_minutes_are_counted_up_to_the_cap(subtests: pytest.Subtests) -> None:
    for missed in ["latest", "skip", "all"]:
        with subtests.test(missed=missed):
            rule = compile_rule(Cron("* * * * *", tz="Europe/Riga"))
            found = plan(due_schedule(START, missed=missed, missed_limit=50, overlap="allow"), rule, START + 90 * DAY)
            stood = sum(fire.stands_for for fire in found.fires) + sum(skip.count for skip in found.skips)
            assert COUNTED <= stood <= COUNTED + 1
            assert found.next == START + 90 * DAY + MINUTE
            assert found.last == START + 90 * DAY


def test_missed_instants_of_a_shared_rule_are_counted_once() -> None:
    """A batch of 2,000 rows must not take minutes in a process that also renews leases."""
    rule = compile_rule(Cron("* * * * *", tz="Europe/Vilnius"))
    walks = 0
    walk = rule.next

    def counted(after: int, anchor: int) -> int | None:
        nonlocal walks
        walks += 1
        return walk(after, anchor)

    rule.next = counted  # type: ignore[method-assign]  # counts the calls
    for number in range(200):
        plan(due_schedule(START + number, shift=number), rule, START + 90 * DAY + number)
    assert walks < 2 * COUNTED


FREE = due_schedule(START, free=True, held=START - HOUR, held_for=3, next_at=START + HOUR, overlap="queue_one")


HELD_FIRES: list[tuple[When, dict[str, object], int, int | None, bool]] = [
    (Every("1h"), {}, 1, START + HOUR, False),
    (Every("1h"), {"busy": True}, 0, START + HOUR, False),
    (Every("1h"), {"fires_left": 1}, 1, None, True),
    (Every("1h"), {"fires_left": 0}, 0, None, True),
    (Every("1h"), {"next_at": None}, 1, None, True),
    (Every("1h", count_from="end"), {"next_at": None}, 1, None, False),
]


def test_a_held_fire_is_made_when_no_run_blocks_it(subtests: pytest.Subtests) -> None:
    for when, changes, fires, following, finished in HELD_FIRES:
        with subtests.test(when=when, changes=changes):
            due = DueSchedule(*(changes.get(name, getattr(FREE, name)) for name in DueSchedule.__struct_fields__))  # type: ignore[arg-type]
            found = plan(due, compile_rule(when), START)
            assert [(fire.at, fire.stands_for) for fire in found.fires] == [(START - HOUR, 3)] * fires
            assert (found.next, found.finished) == (following, finished)
            assert (found.held is not None) == bool(due.busy)


WRITTEN_WITH_SQL: list[tuple[When, int | None, int]] = [
    (Every("1h"), None, START + HOUR),
    (Every("1h"), START + DAY, START + DAY),
    (Every("1h"), START - MINUTE, START + 59 * MINUTE),
    (Cron("0 * * * *"), None, START),
    (Cron("0 * * * *"), START + 1, START + HOUR),
    (Once(moment(START)), None, START),
    (Once(moment(START + 5)), None, START + 5),
]


def test_a_row_written_with_sql_counts_from_when_it_was_written(subtests: pytest.Subtests) -> None:
    """Even if no scheduler ran for a while: an instant that passed in the meantime is due, not lost."""
    for when, starts_at, first in WRITTEN_WITH_SQL:
        with subtests.test(when=when, starts_at=starts_at):
            due = due_schedule(START, planned=False, starts_at=starts_at)
            for now in (START, START + SECOND, START + 10 * DAY):
                found = plan(due, compile_rule(when), now)
                assert (found.fires, found.skips, found.next, found.finished) == ([], [], first, False)


def test_a_held_fire_survives_a_new_plan() -> None:
    due = due_schedule(START, planned=False, held=START - HOUR, held_for=2)
    for when in (Cron("0 * * * *"), Once(moment(START - DAY))):
        found = plan(due, compile_rule(when), START)
        assert found.held == PlannedFire(START - HOUR, 2)
        assert not found.finished
