"""The model checker itself: it finds a lost update, a deadlock and a broken fence, and repeats what it found."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from sereno.database.statement import Operation, Statement
from tests.interleavings.connections import Connections
from tests.interleavings.execution import Choice, Decision, parse
from tests.interleavings.explore import explore_all, explore_random, repeat
from tests.interleavings.program import Program, ReplyLost, Run
from tests.interleavings.scenario import Scenario
from tests.interleavings.schedule_runner import ScheduleFailed
from tests.interleavings.search import DrawnSchedules
from tests.jobs.job_steps import Connection


@pytest.fixture
def connections(database_url: str) -> Iterator[Connections]:
    with Connections(database_url) as opened:
        yield opened


@dataclass
class Counter:
    """A table of two rows, and what the actors saw."""

    seen: list[str] = field(default_factory=list)


def two_rows(connection: Connection) -> Counter:
    connection.execute("create table if not exists public.counter (id int primary key, value int not null)")
    connection.execute("delete from public.counter")
    connection.execute("insert into public.counter values (1, 0), (2, 0)")
    return Counter()


def read_and_write() -> Operation[None]:
    rows = yield Statement("select value from public.counter where id = 1")
    yield Statement("update public.counter set value = %(value)s where id = 1", {"value": rows[0][0] + 1})


def add_to(*ids: int) -> Operation[None]:
    for number in ids:
        yield Statement("update public.counter set value = value + 1 where id = %(id)s", {"id": number})


def value(connection: Connection) -> int:
    row = connection.execute("select sum(value) from public.counter").fetchone()
    assert row is not None
    return int(row[0])


def two_added(connection: Connection, _world: Counter) -> None:
    assert value(connection) == 2, f"the counter is {value(connection)}"


def once(operation: Operation[None], *, atomic: bool = False) -> Program:
    yield Run(operation, atomic=atomic)


LOST_UPDATE = Scenario(
    name="lost_update",
    capability="test",
    only_rows=False,
    set_up=two_rows,
    programs={"A": lambda _: once(read_and_write()), "B": lambda _: once(read_and_write())},
    check=two_added,
)
DEADLOCK = Scenario(
    name="deadlock",
    capability="test",
    only_rows=False,
    set_up=two_rows,
    programs={"A": lambda _: once(add_to(1, 2), atomic=True), "B": lambda _: once(add_to(2, 1), atomic=True)},
    check=lambda *_: None,
)


def test_without_a_preemption_no_update_is_lost(connections: Connections) -> None:
    assert explore_all(connections, LOST_UPDATE, preemptions=0).schedules == 2


@pytest.mark.slow
def test_one_preemption_finds_the_lost_update_and_its_schedule_can_be_repeated(connections: Connections) -> None:
    with pytest.raises(ScheduleFailed, match="the counter is 1") as failure:
        explore_all(connections, LOST_UPDATE, preemptions=1)
    # The shortest schedule: A reads, then B runs to its end, then A writes what it had read.
    with pytest.raises(ScheduleFailed, match="the counter is 1"):
        repeat(connections, LOST_UPDATE, parse(failure.value.schedule))


@pytest.mark.slow
def test_random_schedules_find_it_too(connections: Connections) -> None:
    with pytest.raises(ScheduleFailed, match="the counter is 1"):
        explore_random(connections, LOST_UPDATE, seed=1, count=100)


@pytest.mark.slow
def test_a_deadlock_is_a_finding(connections: Connections) -> None:
    with pytest.raises(ScheduleFailed, match="deadlock"):
        explore_all(connections, DEADLOCK, preemptions=1)


@pytest.mark.slow
def test_a_statement_waits_for_the_transaction_that_blocks_it(connections: Connections) -> None:
    scenario = Scenario(
        name="wait",
        capability="test",
        only_rows=False,
        set_up=two_rows,
        programs={"A": lambda _: once(add_to(1), atomic=True), "B": lambda _: once(add_to(1), atomic=True)},
        check=two_added,
    )
    tally = explore_all(connections, scenario, preemptions=2)
    assert tally.blocked > 0
    assert tally.diverged == 0


@pytest.mark.slow
def test_a_kill_rolls_back_and_a_lost_reply_is_told(connections: Connections) -> None:
    ends: set[tuple[tuple[str, ...], int]] = set()

    def adds(world: Counter) -> Program:
        try:
            yield Run(add_to(1))
            world.seen.append("added")
        except ReplyLost:
            world.seen.append("lost")

    scenario = Scenario(
        name="faults",
        capability="test",
        only_rows=False,
        set_up=two_rows,
        programs={"A": adds},
        check=lambda connection, world: ends.add((tuple(world.seen), value(connection))),
        faulty=frozenset("A"),
    )
    explore_all(connections, scenario, preemptions=0, faults=1)
    # Killed before it commits, the reply of the commit lost, or neither.
    assert ends == {((), 0), (("lost",), 1), (("added",), 1)}


@pytest.mark.slow
@pytest.mark.parametrize(("preemptions", "schedules"), [(0, 2), (1, 4), (2, 6)])
def test_every_order_of_two_statements_and_two_commits_is_searched(
    connections: Connections, preemptions: int, schedules: int
) -> None:
    """Two actors with two moves each, which never wait: six orders."""
    scenario = Scenario(
        name="orders",
        capability="test",
        only_rows=False,
        set_up=two_rows,
        programs={"A": lambda _: once(add_to(1)), "B": lambda _: once(add_to(2))},
        check=two_added,
    )
    assert explore_all(connections, scenario, preemptions=preemptions).schedules == schedules


def test_a_random_schedule_that_is_drawn_again_is_not_run_again(connections: Connections) -> None:
    scenario = Scenario(
        name="orders",
        capability="test",
        only_rows=False,
        set_up=two_rows,
        programs={"A": lambda _: once(add_to(1)), "B": lambda _: once(add_to(2))},
        check=two_added,
    )
    tally = explore_random(connections, scenario, seed=1, count=5_000)
    assert (tally.schedules, tally.ran) == (5_000, 6)


def decided(text: str, enabled: str) -> list[Decision]:
    """Return the decisions of a schedule; `enabled`: what was possible at each of them."""
    points = [tuple(parse(" ".join(each))) for each in enabled.split()]
    return [Decision(chosen, point, None) for chosen, point in zip(parse(text), points, strict=True)]


def test_a_schedule_is_known_when_it_leads_through_known_points_to_an_end() -> None:
    drawn = DrawnSchedules()

    def contains(text: str) -> bool:
        choices = iter(parse(text))
        return drawn.contains(lambda *_: next(choices))

    assert not contains("A B")
    drawn.add(decided("A B", "AB B"))
    assert contains("A B")
    assert not contains("B A")
    drawn.add(decided("B A", "AB A"))
    assert contains("B A")
    # PostgreSQL decided otherwise: what follows `B` is not known any more.
    drawn.add(decided("B A B", "AB AB B"))
    assert not contains("B A B")
    assert not contains("B A")
    assert contains("A B")


def test_a_printed_schedule_is_parsed() -> None:
    assert parse("A B! C?") == [Choice("A"), Choice("B", "!"), Choice("C", "?")]
