"""The log lines of a run: start, success and error, each with the same structured fields, in the central log.

The names of events, fields and systems are those of the original design, so that its queries and dashboards find them.
"""

import logging
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from reconciliation.job_types import RETRY
from sereno import Cancel, Context, Dead, Snooze

# Features, and the systems that the original design had: its API requested and registered, its backend read files.
CONCILIATION, SALES_SYNC = "ifood_conciliation", "ifood_sales_sync"
API, BACKEND = "dex-api", "dex-python"


@dataclass
class RunLog:
    """`with RunLog(…) as log:` logs how the attempt ends. `stage`: what the attempt does now.

    A success is logged once, with `counts`. An error is logged for each attempt that failed; its status is `failed` if
    the job is not tried again. An attempt that is snoozed, or whose worker stops, has not failed.
    """

    ctx: Context
    feature: str
    system: str
    fields: dict[str, Any]
    stage: str = "start"
    counts: Any = None
    run: int | None = None
    _event: str = field(init=False)

    def __post_init__(self) -> None:
        self._event = f"{self.feature}.python" if self.system == BACKEND else self.feature

    async def started(self) -> datetime:
        """Log the start of the run at its first attempt; return when that was."""
        return await self.ctx.step("start", self._started)

    def _started(self) -> datetime:
        self.line("start", "running", "the run starts")
        return self.ctx.claimed_at

    def line(self, name: str, status: str, message: str, level: int = logging.INFO, **more: Any) -> None:
        """Log one line with the fields of the run."""
        own = {
            "event": f"{self._event}.{name}",
            "feature": self.feature,
            "system": self.system,
            "stage": self.stage,
            "status": status,
            "run_id": self.run or self.ctx.job_id,
        }
        self.ctx.log.log(level, message, extra=self.fields | own | more)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            counts = asdict(self.counts) if is_dataclass(self.counts) and not isinstance(self.counts, type) else {}
            self.line("success", "success", "the run has succeeded", **counts)
        elif isinstance(error, Exception) and not isinstance(error, Snooze | Cancel):
            is_final = isinstance(error, Dead) or RETRY.is_permanent(error) or self.ctx.failures >= RETRY.retries
            status = "failed" if is_final else "error"
            detail = {"error_type": type(error).__name__, "error_message": str(error)}
            self.line("error", status, str(error) or type(error).__name__, logging.ERROR, **detail)
