"""The procedures that triggers may call, with retries and limits. Triggers are rows: no deployment to change one."""

import os

from sereno import Backoff, Limit, Sereno

MAX_RETRIES = int(os.environ.get("TRIGGERS_MAX_RETRIES", "5"))
FIRST_RETRY = os.environ.get("TRIGGERS_FIRST_RETRY", "1m")

app = Sereno(service="triggers")

# One call per plant at a time, shared by all procedures with this limit.
one_per_plant = Limit(1, key="{plant}", name="triggers.plant")
# 1, 2, 4, 8, 16 minutes; then the run is a dead letter.
patient = Backoff(MAX_RETRIES, first=FIRST_RETRY, factor=2, cap="1h")

refresh_stock = app.procedure(
    "triggers.refresh_stock", task="triggers.refresh_stock", queue="triggers", concurrency=one_per_plant, retry=2
)
close_day = app.procedure(
    "triggers.close_day", task="triggers.close_day", queue="triggers", concurrency=one_per_plant, retry=patient
)
recount_tanks = app.procedure(
    "triggers.recount_tanks", task="triggers.recount_tanks", queue="triggers", concurrency=one_per_plant, retry=patient
)
settle_month = app.procedure("triggers.settle_month", task="triggers.settle_month", queue="triggers", retry=patient)
# Declared but not allowed yet: its jobs become dead letters without a call.
purge_readings = app.procedure(
    "triggers.purge_readings", task="triggers.purge_readings", queue="triggers", retry=patient
)
