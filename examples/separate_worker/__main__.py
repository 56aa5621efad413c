"""`python -m separate_worker`: the API, or with WORKER_MODE=1 a worker. One image, one command."""

import os
import sys

from separate_worker.settings import read
from sereno import ConfigurationError

# A stream of the dashboard does not end by itself; the jobs of a monolith have `SERENO_GRACE` seconds after that.
STREAMS_END_AFTER = 5


def main() -> None:
    try:
        settings = read()
    except ConfigurationError as error:
        sys.exit(f"Error: {error}")
    if settings.is_worker:
        worker = [sys.executable, "-m", "sereno", "worker", "separate_worker.app:app", *sys.argv[1:]]
        os.execv(sys.executable, worker)  # noqa: S606 - no shell is what we want
    import uvicorn  # noqa: PLC0415 - a worker needs none

    from separate_worker.app import app  # noqa: PLC0415 - see above
    from sereno.telemetry.log_events import configure  # noqa: PLC0415 - see above

    # A monolith logs its jobs and cycles as a worker does.
    configure(app.settings.log_level, app.settings.log_format)
    app.check_schema()
    uvicorn.run(
        "separate_worker.api:api",
        host=settings.host,
        port=settings.port,
        timeout_graceful_shutdown=STREAMS_END_AFTER,
        server_header=False,
    )


if __name__ == "__main__":
    main()
