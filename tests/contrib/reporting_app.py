"""An application that reports to the receiver of a test, also from the processes of isolated tasks."""

import os
import time

import sentry_sdk

from sereno import Sereno
from sereno.contrib.sentry import instrument

app = Sereno()


@app.task(isolate=True, retry=0)
def alone() -> None:
    raise OSError("alone")


@app.task(isolate=True, retry=0, timeout=0.2)
def slow() -> None:
    time.sleep(600)


@app.task(retry=0)
async def together() -> None:
    raise OSError("together")


# Only in the processes that the test starts.
if "REPORTING_APP_DSN" in os.environ:
    sentry_sdk.init(dsn=os.environ["REPORTING_APP_DSN"])
    instrument(app)
