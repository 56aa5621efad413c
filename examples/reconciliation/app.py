"""Everything that a worker of this program runs: `sereno worker reconciliation.app:app`."""

from reconciliation import accounts, failures, planning, process, reconcile, retention, sales_sync
from reconciliation.job_types import app

__all__ = ["accounts", "app", "failures", "planning", "process", "reconcile", "retention", "sales_sync"]
