"""One worker process: `python -m bench.worker_process URL QUEUE=SLOTS TALLY`. It runs until SIGTERM."""

import asyncio
import signal
import sys
from pathlib import Path

from bench.tally import Tally
from bench.tasks import register
from sereno import Sereno


async def work(url: str, queues: dict[str, int], tally: Path) -> None:
    app = Sereno(url)
    register(app, Tally(tally).join())
    worker = app.worker(queues)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()
    if worker.lost:
        sys.exit("the worker lost its session")


def main(url: str, queues: str, tally: str) -> None:
    name, _, slots = queues.partition("=")
    process = work(url, {name: int(slots)}, Path(tally))
    try:
        import uvloop  # noqa: PLC0415 - used where it is installed
    except ImportError:
        asyncio.run(process)
    else:
        uvloop.run(process)


if __name__ == "__main__":
    main(*sys.argv[1:])
