"""`python -m tests.faults.carrier_storm`: a storm of faults over a carried queue on a cluster of three nodes.

Workers are killed; nodes are killed, paused, cut off from the others, and all restarted at once; so is PostgreSQL.
The producer notes what was accepted, and handlers note what they did, in files that sereno does not know.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click as options
import psycopg

from bench.recorded import commit_to_record
from sereno import CarrierUnavailable, DatabaseUnavailable, Sereno
from sereno.database.embedded import EmbeddedPostgres
from sereno.database.migrate import migrate
from tests.acceptance.conftest import WorkerProcess, assert_sound
from tests.facts import until
from tests.faults.carried_app import declare
from tests.faults.carrier_world import QUEUE, CarrierWorld, words
from tests.faults.server import restart
from tests.faults.split_cluster import SplitCluster
from tests.proof import results
from tests.shared_server import MEMORY

APP = "tests.faults.carried_app:app"
# Jobs of one call of the producer.
CHUNK = 250
# Seconds until the producer tries again after an error.
PAUSE = 0.5
# Seconds for which a node is paused or cut off: longer than an election, and than clients stay with it.
CUT = 8.0


@dataclass
class CarrierStormReport:
    """What a storm found; `findings` is empty if everything held."""

    figures: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Producer(threading.Thread):
    """Enqueues numbers, most of them directly, every fifth call in a transaction, until each one is accepted."""

    def __init__(self, tasks: SimpleNamespace, url: str, jobs: int) -> None:
        super().__init__(daemon=True)
        self._tasks = tasks
        self._url = url
        self._jobs = jobs
        self.accepted = 0
        self.repeated = 0
        self.error: BaseException | None = None
        # How far it may go: the storm lets it go on before each fault.
        self._allowed = threading.Semaphore(0)

    def allow(self, chunks: int) -> None:
        self._allowed.release(chunks)

    def run(self) -> None:
        try:
            for number, start in enumerate(range(0, self._jobs, CHUNK)):
                self._allowed.acquire()
                numbers = range(start, min(start + CHUNK, self._jobs))
                while not self._is_accepted(numbers, in_transaction=number % 5 == 4):
                    self.repeated += len(numbers)
                    time.sleep(PAUSE)
                self.accepted += len(numbers)
        except BaseException as error:  # noqa: BLE001 - raised by the storm
            self.error = error

    def _is_accepted(self, numbers: range, *, in_transaction: bool) -> bool:
        """Enqueue the numbers. After an error some may have been accepted; they are enqueued again all the same."""
        jobs = [_job(self._tasks, n) for n in numbers]
        try:
            if in_transaction:
                with psycopg.connect(self._url) as connection:
                    self._tasks.app.enqueue_many(jobs, connection=connection)
            else:
                self._tasks.app.enqueue_many(jobs)
        except (CarrierUnavailable, DatabaseUnavailable, psycopg.OperationalError):
            return False
        return True


def _job(tasks: SimpleNamespace, n: int) -> Any:
    """Return the job of a number: some fail, some write in a transaction, most just succeed."""
    if is_dead(n):
        return tasks.fail.job(n)
    if n % 50 == 0:
        return tasks.fail_once.job(n)
    if is_written(n):
        return tasks.write.job(n)
    return tasks.click.job(n, 0.02)


def is_written(n: int) -> bool:
    return n % 100 == 3


def is_dead(n: int) -> bool:
    return n % 500 == 7


class CarrierStorm:
    """A server, a cluster, workers, and the faults."""

    def __init__(self, directory: Path, seed: int, say: Callable[[str], None]) -> None:
        self._directory = directory
        self._say = say
        self._rng = random.Random(seed)
        self.log = directory / "journal"
        self.log.touch()
        self._server = EmbeddedPostgres(directory / "pg")
        self.nats = SplitCluster(directory / "nats")
        self.world = CarrierWorld(self.nats, replicas=3)
        self.workers: list[WorkerProcess] = []
        self._started = 0
        self.report = CarrierStormReport()

    def run(self, jobs: int, kills: int) -> CarrierStormReport:
        began = time.monotonic()
        (self._directory / "pg").mkdir(mode=0o755)
        self._directory.chmod(0o755)
        self.nats.start()
        try:
            with self._server:
                with psycopg.connect(self._server.url, autocommit=True) as connection:
                    migrate(connection)
                    connection.execute("create table effects (job_id bigint not null, n bigint not null)")
                self.world.prepare()
                self._storm(jobs, kills)
        finally:
            for worker in self.workers:
                worker.kill()
            self.nats.stop()
        self.report.seconds = time.monotonic() - began
        return self.report

    def _storm(self, jobs: int, kills: int) -> None:
        url = self._server.url
        tasks = declare(Sereno(url, carriers=self.world.carriers))
        producer = Producer(tasks, url, jobs)
        self.workers = [self._worker() for _ in range(2)]
        producer.start()
        chunks = -(-jobs // CHUNK)
        for number in range(kills):
            producer.allow(chunks // kills)
            self._fault(number, kills)
            if producer.error is not None:
                raise producer.error
        producer.allow(chunks)
        self._say("the faults are over")
        producer.join()
        if producer.error is not None:
            raise producer.error
        with psycopg.connect(url, autocommit=True) as connection:
            self.world.wait_until_done(connection, self.log)
            for worker in self.workers:
                if worker.end() != 0:
                    self.report.findings.append("a worker did not end with 0")
            self._judge(connection, producer, jobs)
        tasks.app.close()

    def _worker(self) -> WorkerProcess:
        self._started += 1
        log = self._directory / f"worker-{self._started}"
        # A longer lease than in other tests: many processes start at once here.
        environment = {"SERENO_CARRIERS": self.world.setting, "TEST_LOG": str(self.log), "SERENO_LEASE": "10"}
        return WorkerProcess(
            self._server.url, log, "--processes", "2", "--queue", f"{QUEUE}=50", app=APP, **environment
        )

    def _count(self, name: str) -> None:
        self.report.figures[name] = self.report.figures.get(name, 0) + 1

    def _fault(self, number: int, kills: int) -> None:
        """Kill a process of a worker that is at work; beside it, now and then, something else fails."""
        size = self.log.stat().st_size
        until(lambda: self.log.stat().st_size > size, 90.0)
        node = number // 4 % 3
        match number % 8:
            case 1:
                self._count("nodes killed")
                self.nats.kill(node)
                self._kill_a_worker(number)
                self.nats.start_node(node)
                self.nats.wait_for(node)
            case 3:
                self._count("nodes paused")
                self.nats.pause(node)
                self._kill_a_worker(number)
                time.sleep(CUT)
                self.nats.resume(node)
            case 5:
                self._count("restarts of PostgreSQL")
                self._kill_a_worker(number)
                restart(self._server, self._directory / "pg")
            case 7:
                self._count("nodes cut off from the others")
                self.nats.isolate(node)
                self._kill_a_worker(number)
                time.sleep(CUT)
                self.nats.heal()
            case _:
                self._kill_a_worker(number)
        if number == kills // 2:
            self._count("restarts of the whole cluster")
            for each in range(3):
                self.nats.kill(each)
            self.nats.start()
        if number % 10 == 9:
            self._say(f"{number + 1} of {kills} kills, {len(words(self.log, 'done')):,} numbers done")

    def _kill_a_worker(self, number: int) -> None:
        self._count("workers killed")
        victim = self._rng.choice(self.workers)
        victim.wait_started()
        if number % 3 != 1 and (processes := victim.children()):
            os.kill(self._rng.choice(processes), signal.SIGKILL)
            return
        victim.kill()
        self.workers.remove(victim)
        self.workers.append(self._worker())

    def _judge(self, connection: psycopg.Connection, producer: Producer, jobs: int) -> None:
        """Compare the journals with each other and with PostgreSQL."""
        done, failed = words(self.log, "done"), words(self.log, "failed")
        every = set(range(jobs))
        dead = {n for n in every if is_dead(n)}
        written = connection.execute("select job_id, n from effects").fetchall()
        buried = {
            int(row[0])
            for row in connection.execute("select args ->> 'n' from sereno.history where state = 'dead'").fetchall()
        }
        expect = self._expect
        expect(producer.accepted == jobs, f"only {producer.accepted:,} of {jobs:,} were accepted")
        # A process may have been killed after the commit, and before it noted that.
        lost = every - dead - done.keys() - {n for _, n in written}
        expect(not lost, f"{len(lost)} are lost: {sorted(lost)[:20]}")
        expect(
            dead == buried, f"failures without a dead letter: {sorted(dead - buried)[:20]}, {len(buried - dead)} more"
        )
        expect({n for _, n in written} == {n for n in every if is_written(n)}, "a transaction is missing")
        expect(len({job_id for job_id, _ in written}) == len(written), "a transaction was committed twice")
        expect(failed.keys() <= dead | {n for n in every if n % 50 == 0}, "a number failed that should not")
        self.report.figures |= {
            "jobs accepted": jobs,
            "jobs enqueued again after an error": producer.repeated,
            "runs of a success beyond the first": done.total() - len(done),
            "dead letters": len(buried),
            "transactions of handlers": len(written),
        }
        try:
            assert_sound(connection)
        except AssertionError as error:
            self.report.findings.append(f"sereno verify: {error}")

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.report.findings.append(otherwise)


@options.command()
@options.option("--jobs", default=3_000, show_default=True, help="Jobs that the producer enqueues.")
@options.option("--kills", default=4, show_default=True, help="kill -9 of workers; other faults follow this number.")
@options.option("--seed", default=1, show_default=True)
@options.option("--record", is_flag=True, help="Record the figures for docs/why/proof.md.")
@options.option("--keep", is_flag=True, help="Keep the journal and the logs.")
def main(jobs: int, kills: int, seed: int, *, record: bool, keep: bool) -> None:
    """Run one storm, and report what it found."""
    commit = commit_to_record(results.FILE) if record else ""
    directory = Path(tempfile.mkdtemp(prefix="sereno-carrier-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    storm = CarrierStorm(directory, seed, lambda text: options.echo(text, err=True))
    report = None
    try:
        report = storm.run(jobs, kills)
    finally:
        if keep or report is None or report.findings:
            options.echo(f"journal and logs: {directory}", err=True)
        else:
            shutil.rmtree(directory)
    for name, value in report.figures.items():
        options.echo(f"{name:<40} {value:>12,}")
    options.echo(f"{'seconds':<40} {report.seconds:>12,.0f}")
    for finding in report.findings:
        options.echo(f"FOUND {finding}")
    options.echo(f"{len(report.findings)} findings" if report.findings else "everything holds")
    if report.findings:
        sys.exit(1)
    if record:
        command = f"python -m tests.faults.carrier_storm --jobs {jobs} --kills {kills} --seed {seed}"
        stored = results.load()
        stored.carrier_storm = results.StormRun(
            results.today(), commit, command, seed, round(report.seconds), report.figures
        )
        results.save(stored)


if __name__ == "__main__":
    main()
