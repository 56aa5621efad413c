"""DBOS: cron schedules with seconds, each at its own second of every minute, written in bulk.

    dbos_program.py install  URL
    dbos_program.py register URL SCHEDULES  prints the seconds it took
    dbos_program.py run      URL TALLY      runs until it is stopped

A fire is a workflow that is written to the queue; the same process runs it, which cannot be switched off.
"""

import sys
import threading
import time
from datetime import datetime
from typing import Any

from dbos import DBOS, DBOSConfig


@DBOS.workflow()
def close_month(planned: datetime, context: Any) -> None:
    """Do nothing."""


def launch(url: str) -> None:
    DBOS(config=DBOSConfig(name="bench", system_database_url=url, log_level="WARNING"))
    DBOS.launch()


def register(schedules: int) -> None:
    started = time.perf_counter()
    DBOS.apply_schedules(
        [
            {
                "schedule_name": f"s{number}",
                "workflow_fn": close_month,
                "schedule": f"{number % 60} * * * * *",
                "context": number,
            }
            for number in range(schedules)
        ]
    )
    print(time.perf_counter() - started)


def main(command: str, url: str, *arguments: str) -> None:
    launch(url)
    match command:
        case "install":
            pass
        case "register":
            register(int(arguments[0]))
        case "run":
            threading.Event().wait()
        case _:
            sys.exit(f"unknown command {command}")
    DBOS.destroy()


if __name__ == "__main__":
    main(*sys.argv[1:])
