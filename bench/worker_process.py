"""One worker process: `python -m bench.worker_process URL QUEUE=SLOTS TALLY [features]`. It runs until SIGTERM.

With `features` it runs the tasks of `bench.feature_tasks`, otherwise those of `bench.tasks`.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from bench.tally import Tally
from bench.tasks import register
from sereno import Sereno


async def work(app: Sereno, queues: dict[str, int]) -> None:
    worker = app.worker(queues)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()
    if worker.lost:
        sys.exit("the worker lost its session")


def _app(url: str, tally: str) -> Sereno:
    app = Sereno(url)
    register(app, Tally(Path(tally)).join())
    return app


def _feature_app(url: str, tally: str) -> Sereno:
    from bench import feature_tasks  # noqa: PLC0415 - the other workers do without its tasks

    # Read at the first call; isolated processes inherit it.
    os.environ[feature_tasks.TALLY] = tally
    feature_tasks.app.override(database_url=url)
    return feature_tasks.app


def main(url: str, queues: str, tally: str, tasks: str = "") -> None:
    name, _, slots = queues.partition("=")
    app = _feature_app(url, tally) if tasks == "features" else _app(url, tally)
    process = work(app, {name: int(slots)})
    try:
        import uvloop  # noqa: PLC0415 - used where it is installed
    except ImportError:
        asyncio.run(process)
    else:
        uvloop.run(process)


if __name__ == "__main__":
    main(*sys.argv[1:])
