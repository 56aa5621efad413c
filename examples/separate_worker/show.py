"""`python -m separate_worker.show`: an API process, a worker process, a CRM and a stream of leads."""

import asyncio
import os
import signal
import sys

from separate_worker.app import app
from separate_worker.demo import stage


async def main() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    app.check_schema()
    async with stage(app) as environment:
        given = {**os.environ, **environment, "SERENO_DATABASE_URL": app.url}
        started = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "separate_worker", env={**given, "WORKER_MODE": mode}, start_new_session=True
            )
            for mode in ("1", "0")
        ]
        print("Try:  curl http://127.0.0.1:8000/api/integrations/jobs/metrics     Ctrl-C ends it.", flush=True)
        await asyncio.wait(
            [asyncio.create_task(stop.wait()), *(asyncio.create_task(process.wait()) for process in started)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for process in started:
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(process.wait() for process in started))
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
