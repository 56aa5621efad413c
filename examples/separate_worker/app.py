"""The application with all its tasks: what a worker loads. It knows nothing of HTTP servers.

WORKER_MODE=1 python -m separate_worker
"""

from separate_worker.leads import follow_up, push_lead
from separate_worker.queues import app
from separate_worker.runner import follow_ups
from separate_worker.webhooks import forget_messages, handle_message

__all__ = ["TASKS", "app"]

TASKS = (push_lead, follow_up, follow_ups, handle_message, forget_messages)
