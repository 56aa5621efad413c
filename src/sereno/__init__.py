"""Schedules, jobs and notifications that arrive, on the PostgreSQL you already run."""

from sereno.app import Sereno
from sereno.client.task import Task
from sereno.domain.attempt import Cancel, Dead, Outcome, Retry, Snooze
from sereno.domain.job import Job, NewJob
from sereno.domain.retry import Backoff
from sereno.engine.context import Context
from sereno.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    DuplicateJob,
    InvalidArguments,
    LeaseLost,
    SchemaError,
    SerenoError,
    UnknownTask,
)
from sereno.version import __version__

__all__ = [
    "Backoff",
    "Cancel",
    "ConfigurationError",
    "Context",
    "DatabaseUnavailable",
    "Dead",
    "DuplicateJob",
    "InvalidArguments",
    "Job",
    "LeaseLost",
    "NewJob",
    "Outcome",
    "Retry",
    "SchemaError",
    "Sereno",
    "SerenoError",
    "Snooze",
    "Task",
    "UnknownTask",
    "__version__",
]
