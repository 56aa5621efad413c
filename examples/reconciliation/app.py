"""Everything that a worker of this program runs: `sereno worker reconciliation.app:app`."""

from reconciliation import failures, reconcile, sales_sync
from reconciliation.job_types import app

__all__ = ["app", "failures", "reconcile", "sales_sync"]
