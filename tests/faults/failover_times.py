"""Measures a fail-over: `python -m tests.faults.failover_times [ROUNDS]`.

Three servers on this machine, a worker with two processes, and a process that enqueues one job after the other. In each
round the primary is killed, and a loop that asks it ten times a second promotes the synchronous standby after a second
without an answer. The killed server then rejoins as the synchronous standby of the new primary.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from tests.facts import until
from tests.faults.failover_processes import Journal, Processes, assert_journal_holds
from tests.faults.test_failover import APP, prepare, settled
from tests.replication import ReplicatedServers, Server

# Seconds between two questions of the loop that promotes, and without an answer until it does.
ASK_EVERY, PROMOTE_AFTER = 0.1, 1.0
DEFAULT_ROUNDS = 20


def promote_when_dead(primary: Server, standby: Server) -> None:
    """Do what a cluster manager does: promote the standby once the primary has not answered for a while."""
    silent_since: float | None = None
    while silent_since is None or time.monotonic() - silent_since < PROMOTE_AFTER:
        try:
            primary.one("select 1")
            silent_since = None
        except psycopg.OperationalError:
            silent_since = silent_since or time.monotonic()
        time.sleep(ASK_EVERY)
    standby.promote()


def seconds_until(fact: Callable[[], bool], began: float) -> float:
    """Return the seconds from `began` until the fact."""
    until(fact, timeout=120)
    return time.monotonic() - began


def one_round(servers: ReplicatedServers, journal: Journal, old: str, new: str) -> tuple[float, float, float]:
    """Return the seconds from the kill: to the promotion, to the next accepted job, to the next settled one."""
    killed = time.monotonic()
    servers[old].kill()
    promote_when_dead(servers[old], servers[new])
    promoted = time.monotonic() - killed
    accepted, done = len(journal.numbers("accepted")), settled(servers[new])
    to_accepted = seconds_until(lambda: len(journal.numbers("accepted")) > accepted, killed)
    to_settled = seconds_until(lambda: settled(servers[new]) > done, killed)
    servers["c"].follow_instead(servers[new])
    servers[old].follow(servers[new])
    until(lambda: servers[new].one("select count(*) from pg_stat_replication where state = 'streaming'") == 2)
    servers[new].set(synchronous_standby_names=old)
    until(journal.grows(), timeout=60)
    position = servers[new].one("select pg_current_wal_lsn()")
    until(lambda: servers[new].has_received(old, position))
    return promoted, to_accepted, to_settled


def main(rounds: int) -> None:
    with ReplicatedServers() as servers, tempfile.TemporaryDirectory() as directory:
        prepare(servers["a"])
        place = Path(directory)
        journal, stop = Journal(place / "journal"), place / "stop"
        processes = Processes(servers.url(), place)
        processes.start("sereno", "worker", APP, "--processes", "2")
        processes.start("tests.faults.failover_app", str(journal.path), str(stop))
        until(journal.grows(), timeout=60)
        pairs = [("a", "b"), ("b", "a")]
        found = [one_round(servers, journal, *pairs[number % 2]) for number in range(rounds)]
        stop.touch()
        primary = servers[pairs[(rounds - 1) % 2][1]]
        until(lambda: primary.one("select count(*) from sereno.jobs where task = 'effect'") == 0, timeout=60)
        with primary.connect() as connection:
            assert_journal_holds(journal, connection)
        counts = len(journal.numbers("accepted")), len(journal.numbers("unknown"))
        processes.stop()
    for name, values in zip(("promoted", "accepted", "settled"), zip(*found, strict=True), strict=True):
        sys.stderr.write(f"{name}: median {statistics.median(values):.2f} s, most {max(values):.2f} s\n")
    gaps = [settled_at - promoted for promoted, _, settled_at in found]
    sys.stderr.write(f"from promoted to settled: median {statistics.median(gaps):.2f} s, most {max(gaps):.2f} s\n")
    sys.stderr.write(f"{rounds} rounds, {counts[0]} jobs accepted and settled, {counts[1]} calls with an error\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_ROUNDS)
