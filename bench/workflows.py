"""Jobs that wait for others, and callers that wait for results.

A drain of one large group, and one beside a million waiting jobs, each compared with plain drains of the same run; the
time of a link in a chain of dependent jobs; and how long a result takes to reach one of ten thousand waiters.
"""

import asyncio
import time
from statistics import mean, median

import psycopg

from bench.context import BenchContext
from bench.drain import CHUNK, Drained, Prepare, drain
from bench.tasks import MONTH, QUEUE, account, register
from bench.workers import BenchmarkFailed, working
from sereno import Job, Sereno

ROUNDS = 5
# Seconds over which the jobs of the waiters become due.
WAITERS_OVER = 10.0
LONGEST_WAIT = "5m"

CHAIN = """
with made as (
    insert into sereno.jobs (task, args, queue, state, ready_seq, pending, has_successors, links)
    select 'noop', jsonb_build_object('account', 'link ' || number, 'month', '2026-11'), %(queue)s,
           case when number = 1 then 'ready' else 'waiting' end,
           case when number = 1 then nextval('sereno.ready_seq') end,
           case when number > 1 then 1 end, number < %(jobs)s, null
    from generate_series(1, %(jobs)s::integer) as number
    returning id
)
insert into sereno.dependencies (predecessor, successor)
select before, id from (select id, lag(id) over (order by id) as before from made) as links where before is not null
"""

WAITING = """
with first as (
    insert into sereno.jobs (task, args, run_at, state) values ('noop', '{}', now() + interval '1 day', 'scheduled')
    returning id
),
made as (
    insert into sereno.jobs (task, args, state, pending, links)
    select 'noop', jsonb_build_object('account', 'waits ' || number, 'month', '2026-12'), 'waiting', 1,
           jsonb_build_object('after', jsonb_build_array(first.id), 'on_dead', 'wait')
    from first, generate_series(1, %s::integer) as number
    returning id
)
insert into sereno.dependencies (predecessor, successor) select first.id, made.id from first, made
"""


def run(context: BenchContext) -> None:
    """`group` and `waiting`, each also as processor time; `chain_link` and `waiters_p50`."""
    jobs = context.size(200_000, 30_000)
    plain: list[Drained] = []
    group: list[Drained] = []
    waiting: list[Drained] = []
    for _ in range(context.size(ROUNDS, 1)):
        plain.append(drain(context, jobs))
        group.append(drain(context, jobs, enqueue=_enqueue_group))
        waiting.append(drain(context, jobs, prepare=_waiting(context.size(1_000_000, 100_000))))
    rate = mean(drained.rate for drained in plain)
    context.report.figure("workflows_plain", rate, "jobs/s")
    spent = [each.worker + each.server for each in plain]
    context.report.figure("workflows_plain_cpu", median(spent), "us/job")
    for name, drained in (("group", group), ("waiting", waiting)):
        context.report.rounds(
            name, [each.rate for each in drained], "jobs/s", "workflows_plain", [each.rate for each in plain]
        )
        cpu = [each.worker + each.server for each in drained]
        context.report.rounds(f"{name}_cpu", cpu, "us/job", "workflows_plain_cpu", spent)
    context.report.figure("chain_link", _chain(context, context.size(10_000, 1_000)) * 1000, "ms")
    delays = _waiters(context, context.size(10_000, 1_000))
    context.report.figure("waiters_p50", median(delays) * 1000, "ms")
    context.report.figure("waiters_p99", sorted(delays)[len(delays) * 99 // 100] * 1000, "ms")


def _enqueue_group(url: str, jobs: int) -> int:
    """Enqueue a group of all jobs but one, which follows it; return the last id."""
    app = Sereno(url)
    noop = register(app).noop
    members = (noop.job(account(number), MONTH) for number in range(jobs - 1))
    made = app.group(members, then=noop.job(account(jobs), MONTH)).enqueue()
    app.close()
    if made.then is None or made.total != jobs - 1:
        raise BenchmarkFailed(f"a group of {made.total} jobs")
    return made.then.id


def _waiting(rows: int) -> Prepare:
    def prepare(connection: psycopg.Connection) -> None:
        connection.execute(WAITING.encode(), [rows])
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")

    return prepare


def _chain(context: BenchContext, jobs: int) -> float:
    """Return the seconds of one link: from the first handler of the chain to its last settlement."""
    with (
        context.server.fresh("chain") as url,
        context.tally() as tally,
        psycopg.connect(url, autocommit=True) as connection,
        working(url, tally) as workers,
    ):
        connection.execute(CHAIN.encode(), {"queue": QUEUE, "jobs": jobs})
        workers.wait_for(lambda: tally.executed > 0)
        began = time.perf_counter()
        workers.wait_for(lambda: tally.executed >= jobs and not _left(connection))
        return (time.perf_counter() - began) / jobs


def _left(connection: psycopg.Connection) -> bool:
    row = connection.execute("select exists (select from sereno.jobs)").fetchone()
    return row is None or bool(row[0])


def _waiters(context: BenchContext, count: int) -> list[float]:
    """Return the seconds from the settlement of each job until its waiter has the result."""
    with (
        context.server.fresh("waiters") as url,
        context.tally() as tally,
        working(url, tally),
    ):
        return asyncio.run(_wait(url, count))


async def _wait(url: str, count: int) -> list[float]:
    app = Sereno(url)
    answer = register(app).answer
    jobs: list[Job[int]] = []
    for first in range(0, count, CHUNK):
        numbers = range(first, min(count, first + CHUNK))
        wanted = [answer.using(delay=3 + WAITERS_OVER * number / count).job(number) for number in numbers]
        jobs += await app.aenqueue_many(wanted)
    received: dict[int, float] = {}

    async def one(job: Job[int]) -> None:
        await job.aresult(LONGEST_WAIT)
        received[job.id] = time.time()

    await asyncio.gather(*(one(job) for job in jobs))
    async with app.database.aconnection() as connection:
        rows = await (
            await connection.execute("select id, extract(epoch from finished_at)::float8 from sereno.history")
        ).fetchall()
    await app.aclose()
    return [received[job_id] - finished for job_id, finished in rows]
