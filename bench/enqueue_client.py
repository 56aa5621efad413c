"""One client: `python -m bench.enqueue_client URL START SECONDS`. Enqueues jobs one by one and prints their number."""

import sys
import time

from bench.tasks import MONTH, account, register
from sereno import Sereno


def main(url: str, start: str, seconds: str) -> None:
    app = Sereno(url)
    tasks = register(app)
    # Opens the connection and prepares the statement.
    for number in range(10):
        tasks.noop.enqueue(account(number), MONTH)
    time.sleep(max(0.0, float(start) - time.time()))
    end, count = time.monotonic() + float(seconds), 0
    while time.monotonic() < end:
        tasks.noop.enqueue(account(count), MONTH)
        count += 1
    app.close()
    print(count)


if __name__ == "__main__":
    main(*sys.argv[1:])
