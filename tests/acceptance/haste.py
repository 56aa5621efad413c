"""Worker processes of tests look for what is overdue more often, and give up sooner, than those in production.

The promises do not depend on these numbers; a test that waited for five seconds each time would only be slower.
"""

import os

from sereno.engine import executor, keeper, worker


def hurry() -> None:
    """In a worker process alone: tests import its application as well, and then nothing changes."""
    if "TEST_WORKER" in os.environ:
        keeper.LOOK_EVERY = 1.0
        executor.STUCK_AFTER = worker.CANCEL_PATIENCE = 2.0
