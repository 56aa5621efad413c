"""One producer: `python -m bench.offered_client URL BEGIN JOBS`. Offers jobs at a fixed rate, whatever the queue does.

Each job carries the instant at which the timetable wanted it, not the one at which it was sent: a producer that had to
wait for the database does not hide the wait.
"""

import sys
import time

from bench.tasks import MESSAGE, microseconds, register
from sereno import Sereno

SECOND = 1_000_000
# 5,000 jobs a second.
JOBS_PER_CALL = 50
MICROSECONDS_BETWEEN = 10_000
RATE = JOBS_PER_CALL * SECOND // MICROSECONDS_BETWEEN
# Time for the producer to start, time whose jobs are not counted, and time whose jobs are.
SECONDS_TO_START = 3
SECONDS_WARM_UP = 2
SECONDS, SECONDS_QUICK = 10, 4


def instant(begin: int, number: int) -> int:
    """Return when the timetable wants the job with this number; `begin` and the result in microseconds."""
    return begin + number // JOBS_PER_CALL * MICROSECONDS_BETWEEN


def main(url: str, begin: str, jobs: str) -> None:
    app = Sereno(url)
    task = register(app).stamped
    # Opens the connection.
    app.enqueue_many([])
    for number in range(0, int(jobs), JOBS_PER_CALL):
        wanted = instant(int(begin), number)
        time.sleep(max(0, wanted - microseconds()) / SECOND)
        app.enqueue_many([task.job(wanted, MESSAGE) for _ in range(JOBS_PER_CALL)])
    app.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
