from typing import Any

from reports import app

from sereno import Backoff, Context
# the block of the page
job = call.enqueue("reporting", "close_day", {"day": "2026-11-03"})
assert job.task == "call"
