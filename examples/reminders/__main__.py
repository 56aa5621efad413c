"""The process of the API, `python -m reminders`. Unless NOTIFICATION_WORKER_ENABLED is false, it also runs jobs."""

import sys

import uvicorn

from sereno import ConfigurationError

# Seconds. A live page of the dashboard does not end by itself; running jobs have `SERENO_GRACE` seconds after that.
STREAMS_END_AFTER = 5


def main() -> None:
    try:
        from reminders.api import api  # noqa: PLC0415 - reads the settings, which may be wrong
        from reminders.settings import HOST, PORT  # noqa: PLC0415 - see above
    except ConfigurationError as error:
        sys.exit(f"Error: {error}")
    uvicorn.run(api, host=HOST, port=PORT, timeout_graceful_shutdown=STREAMS_END_AFTER, server_header=False)


if __name__ == "__main__":
    main()
