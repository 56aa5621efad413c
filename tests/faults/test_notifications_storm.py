"""Fault test of notifications: processes are killed while they send, PostgreSQL crashes, the network is cut.

The log of the provider, which no fault hits, shows which messages it received: for exactly the right recipients, and
never again after the database had recorded the outcome.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sereno.database.embedded import EmbeddedPostgres
from sereno.notifications.deliveries.delivery import TRANSITIONS
from tests.acceptance.conftest import WorkerProcess, assert_sound
from tests.facts import one, until
from tests.faults.notified_app import Offer, app, offer_closed, offer_made
from tests.faults.provider_log import ProviderLog, running_provider
from tests.faults.proxy import Proxy
from tests.faults.worker_faults import WorkerFaults

# Records every change of state of a delivery, by the clock that the provider uses too.
RECORD_MOVES = """
    create table moves (delivery bigint, was text, now text, at double precision);
    create function record_move() returns trigger language plpgsql as $$
    begin
        insert into moves values (new.id, old.state, new.state, extract(epoch from clock_timestamp()));
        return null;
    end $$;
    create trigger record_move after update on sereno.deliveries
        for each row when (old.state is distinct from new.state) execute function record_move()
"""
SENDERS = """
    select distinct pid from sereno.deliveries join sereno.jobs on jobs.id = job_id
    join sereno.sessions on sessions.id = session_id
    where deliveries.state = 'sending' and jobs.state = 'running' and pid = any(%s)
"""
WAITING = """
    select (select count(*) from sereno.events where matched_at is null)
         + (select count(*) from sereno.deliveries where state = 'pending')
"""
LEFT = """
    select (select count(*) from sereno.events where matched_at is null)
         + (select count(*) from sereno.deliveries where state in ('pending', 'sending') or receipt_at is not null)
         + (select count(*) from sereno.batches)
         + (select count(*) from sereno.jobs)
"""
# The retry of a killed job waits for a minute; the test does not.
RETRY_NOW = "update sereno.jobs set run_at = sereno.now() where state = 'scheduled' and crashes + failures > 0"


ARGUMENTS = ("--processes", "2", "--queue", "notifications=4")


@pytest.fixture
def provider(log: Path) -> Iterator[str]:
    """Start the provider and return its URL; the messages that it accepted are in its log."""
    with running_provider(log) as url:
        yield url


# The recipients and their preferences: once as rows, once in plain Python.


def create_recipients(url: str, count: int) -> None:
    """Create recipients: subscribed, unsubscribed, with a condition, without an address, with two addresses."""
    prefer = app.recipients.prefer
    with psycopg.connect(url) as own:
        own.execute(RECORD_MOVES)
        for n in range(count):
            key = f"user:{n}"
            app.recipients.upsert(key, {"carrier": addresses(n)}, conn=own)
            match n % 10:
                case 0:
                    prefer(key, wanted=False, conn=own)
                case 1:
                    prefer(key, category="offers", condition={"region": ["V"]}, conn=own)
                case 2:
                    prefer(key, condition={"amount": {"min": 500}}, conn=own)
                case 3:
                    prefer(key, wanted=False, conn=own)
                    prefer(key, event="offer.made", channel="carrier", wanted=True, conn=own)


def addresses(n: int) -> list[str]:
    match n % 50:
        case 14:
            return []
        case 15:
            return [f"gone:{n}"]
        case 16:
            return [f"never:{n}"]
        case 17:
            return [f"a{n}", f"b{n}"]
        case _:
            return [f"a{n}"]


def wants(n: int, event: str, channel: str, offer: Offer) -> bool:
    match n % 10:
        case 0:
            return False
        case 1:
            return offer.region == "V"
        case 2:
            return offer.amount >= 500
        case 3:
            return (event, channel) == ("offer.made", "carrier")
        case _:
            return True


@dataclass(frozen=True)
class AcceptedEvent:
    """An event that was accepted."""

    id: int
    name: str
    offer: Offer

    @property
    def channels(self) -> list[str]:
        return ["carrier"] if self.name == "offer.made" else ["carrier", "in_app"]


class NotificationsStorm(WorkerFaults):
    """Events for all recipients, one after the other."""

    def __init__(self, start: Callable[..., WorkerProcess], url: str) -> None:
        self.accepted: list[AcceptedEvent] = []
        super().__init__(start, url, seed=23)

    def add_work(self) -> None:
        number = len(self.accepted)
        event = (offer_made, offer_closed)[number % 2]
        offer = Offer(f"O{number}", "VR"[number // 2 % 2], self.rng.choice([100, 900]))
        with psycopg.connect(self.url) as own:
            self.accepted.append(AcceptedEvent(event.notify(offer, subject=offer.code, conn=own), event.name, offer))

    def at_work(self, workers: Sequence[WorkerProcess]) -> list[int]:
        """Return the processes that are sending now; create new events while there is nothing to send."""

        def query(connection: psycopg.Connection) -> list[int]:
            pids = [pid for worker in workers for pid in worker.children()]
            found = [row[0] for row in connection.execute(SENDERS, [pids])]
            if not found and one(connection, WAITING) == 0:
                self.add_work()
            return found

        return self.watch.ask(query, otherwise=[])


@pytest.mark.parametrize(
    ("count", "rounds", "kills"),
    [pytest.param(150, 1, 2, marks=pytest.mark.slow), pytest.param(3000, 4, 8, marks=pytest.mark.storm)],
)
@pytest.mark.timeout(3600)
def test_deliveries_are_complete_and_never_repeated_after_their_outcome_under_faults(
    worker: Callable[..., WorkerProcess],
    own_server: tuple[EmbeddedPostgres, Path],
    provider: str,
    log: Path,
    count: int,
    rounds: int,
    kills: int,
) -> None:
    server, directory = own_server
    create_recipients(server.url, count)
    settings = {"TEST_PROVIDER": provider, "TEST_STEP": str(min(500, count // 3))}
    start = partial(worker, *ARGUMENTS, app="tests.faults.notified_app:app", **settings)
    storm = NotificationsStorm(start, server.url)
    for _ in range(rounds):
        with Proxy.before(server.url) as proxy:
            proxied = start(url=proxy.url, wait=False)
            storm.kill(range(kills // 2))
            storm.disturb_the_network(proxy, proxied)
        storm.add_work()
        storm.crash(server, directory)
        storm.kill(range(kills // 2, kills))
    storm.watch.close()
    with psycopg.connect(server.url, autocommit=True) as connection:
        until(lambda: connection.execute(RETRY_NOW) and one(connection, LEFT) == 0, timeout=60 + 120 * rounds)
        for left in storm.workers:
            assert left.end() == 0
        assert_sound(connection)
        assert_audiences_complete(connection, storm.accepted, count)
        assert_moves_legal(connection)
        assert_calls_accounted(connection, log)
        # The faults hit workers while they were sending.
        assert one(connection, "select count(*) from sereno.deliveries where unknowns > 0") >= rounds * kills // 2


def assert_audiences_complete(connection: psycopg.Connection, accepted: list[AcceptedEvent], count: int) -> None:
    """Check that exactly the subscribed recipients were notified, once by each active address."""
    found: dict[tuple[int, str], dict[int, list[str | None]]] = defaultdict(lambda: defaultdict(list))
    for event, channel, key, address in connection.execute(
        "select event_id, d.channel, r.key, a.address from sereno.deliveries d "
        "join sereno.recipients r on r.id = d.recipient_id left join sereno.addresses a on a.id = address_id"
    ):
        found[event, channel][int(key.removeprefix("user:"))].append(address)
    bad = {row[0] for row in connection.execute("select address from sereno.addresses where state <> 'active'")}
    for each in accepted:
        for channel in each.channels:
            reached = found.pop((each.id, channel))
            assert set(reached) == {n for n in range(count) if wants(n, each.name, channel, each.offer)}
            for n, rows in reached.items():
                assert len(rows) == len(set(rows))
                known = addresses(n) if channel == "carrier" else []
                assert set(rows) <= {*known, None}
                assert set(rows) >= set(known) - bad, (each, n)
    assert not found


def assert_moves_legal(connection: psycopg.Connection) -> None:
    moves = connection.execute("select distinct was, now from moves").fetchall()
    assert [(was, now) for was, now in moves if now not in TRANSITIONS[was]] == []
    # A delivery that the provider reported as delivered is never sent again.
    assert {now for was, now in moves if was == "delivered"} <= {"read", "bounced"}


def assert_calls_accounted(connection: psycopg.Connection, log: Path) -> None:
    """Check that a message was repeated only for a counted reason, and never after its outcome was recorded."""
    received = ProviderLog.read(log)
    rows: list[tuple[Any, ...]] = connection.execute(
        "select id, state, unknowns from sereno.deliveries where channel = 'carrier'"
    ).fetchall()
    assert [found for row in rows for found in received.faults(*row)] == []
    calls = received.calls
    known: dict[int, float] = {}
    for delivery, now, at in connection.execute("select delivery, now, at from moves order by at"):
        if now == "sent":
            known[delivery] = at
        elif delivery in known and now == "pending":
            # A receipt reported that it did not arrive.
            since = known.pop(delivery)
            late = [call for call in calls[delivery] if since < call[0] < at]
            assert late == [], (delivery, at, calls[delivery])
    assert [delivery for delivery, at in known.items() if calls[delivery][-1][0] > at] == []
