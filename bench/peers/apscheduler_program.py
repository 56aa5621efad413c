"""APScheduler 3: schedules in PostgreSQL through SQLAlchemy and psycopg, on uvloop; coroutines run on the loop itself.

    apscheduler_program.py install  URL
    apscheduler_program.py register URL SCHEDULES  prints the seconds it took
    apscheduler_program.py run      URL TALLY      runs until it is stopped

Every schedule fires each 100 s, one after the other. APScheduler creates no job row; a fire is a call of the function.
"""

import asyncio
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import uvloop
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from tally import Tally

SECONDS_BETWEEN_FIRES = 100
# Slower than the real registration, so that no schedule is due before all are registered.
REGISTERED_PER_SECOND = 200

WORKER = 0


class Fires:
    """Counts the calls and their lateness."""

    tally: Tally | None = None
    count = 0


async def fire(planned: float) -> None:
    if Fires.tally is None:
        return
    late = (time.time() - planned) % SECONDS_BETWEEN_FIRES
    Fires.tally.add_sample(Fires.count, round(late * 1_000_000))
    Fires.tally.count_up(WORKER)
    Fires.count += 1


def scheduler_on(url: str) -> AsyncIOScheduler:
    store = SQLAlchemyJobStore(url.replace("postgresql:", "postgresql+psycopg:", 1))
    # A late fire is made however late it is; by default APScheduler drops a fire that is a second late.
    defaults = {"misfire_grace_time": None}
    return AsyncIOScheduler(jobstores={"default": store}, job_defaults=defaults, timezone=UTC)


async def register(url: str, schedules: int) -> None:
    scheduler = scheduler_on(url)
    scheduler.start(paused=True)
    started = time.perf_counter()
    first = time.time() + schedules / REGISTERED_PER_SECOND
    for number in range(schedules):
        planned = first + number * SECONDS_BETWEEN_FIRES / schedules
        scheduler.add_job(
            fire,
            "interval",
            seconds=SECONDS_BETWEEN_FIRES,
            start_date=datetime.fromtimestamp(planned, UTC),
            args=[planned],
            id=f"close:{number}",
        )
    print(time.perf_counter() - started)
    scheduler.shutdown()


async def run(url: str, tally: Path) -> None:
    Fires.tally = Tally(tally)
    scheduler_on(url).start()
    await asyncio.Event().wait()


async def main(command: str, url: str, *arguments: str) -> None:
    match command:
        case "install":
            scheduler_on(url).start(paused=True)
        case "register":
            await register(url, int(arguments[0]))
        case "run":
            await run(url, Path(arguments[0]))
        case _:
            sys.exit(f"unknown command {command}")


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
