"""Schedules, jobs and notifications that arrive, on the PostgreSQL you already run."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sereno.version import __version__

if TYPE_CHECKING:
    from sereno.app import Sereno
    from sereno.carriers.address import JetStream
    from sereno.channels.contract import Channel
    from sereno.channels.in_app import in_app
    from sereno.errors import (
        CarrierUnavailable,
        ConfigurationError,
        DatabaseUnavailable,
        DuplicateJob,
        InvalidAddress,
        InvalidArguments,
        InvalidSchedule,
        JobCancelled,
        JobFailed,
        JobNotFound,
        LeaseLost,
        PermissionDenied,
        RejectedCallback,
        ResourceUnavailable,
        ResultUnavailable,
        SchemaError,
        SerenoError,
        SignalTimeout,
        StepOrderChanged,
        UnknownTask,
    )
    from sereno.jobs.attempt import Cancel, Dead, Outcome, Retry, RetryAfter, Snooze
    from sereno.jobs.handle import Job
    from sereno.jobs.job import FireInfo, NewJob
    from sereno.jobs.limits.limit import Limit, Rate
    from sereno.jobs.resource import Resource, inject
    from sereno.jobs.retry import Backoff
    from sereno.jobs.task_handle import Task
    from sereno.notifications.event import Content, Digest, Recipient, Throttle
    from sereno.notifications.recipients.address_confirmation import AddressConfirmation
    from sereno.notifications.recipients.quiet_hours import QuietHours
    from sereno.schedules.rules.when import Cron, Daily, Every, Once
    from sereno.worker.context import Context
    from sereno.worker.hooks import JobEvent
    from sereno.worker.iteration_sources import Keyset, Lines

__all__ = [
    "AddressConfirmation",
    "Backoff",
    "Cancel",
    "CarrierUnavailable",
    "Channel",
    "ConfigurationError",
    "Content",
    "Context",
    "Cron",
    "Daily",
    "DatabaseUnavailable",
    "Dead",
    "Digest",
    "DuplicateJob",
    "Every",
    "FireInfo",
    "InvalidAddress",
    "InvalidArguments",
    "InvalidSchedule",
    "JetStream",
    "Job",
    "JobCancelled",
    "JobEvent",
    "JobFailed",
    "JobNotFound",
    "Keyset",
    "LeaseLost",
    "Limit",
    "Lines",
    "NewJob",
    "Once",
    "Outcome",
    "PermissionDenied",
    "QuietHours",
    "Rate",
    "Recipient",
    "RejectedCallback",
    "Resource",
    "ResourceUnavailable",
    "ResultUnavailable",
    "Retry",
    "RetryAfter",
    "SchemaError",
    "Sereno",
    "SerenoError",
    "SignalTimeout",
    "Snooze",
    "StepOrderChanged",
    "Task",
    "Throttle",
    "UnknownTask",
    "__version__",
    "in_app",
    "inject",
]

# Where the public names live. They are imported when first used, so that the command line opens quickly.
_HOMES = {
    "app": ("Sereno",),
    "carriers.address": ("JetStream",),
    "channels.contract": ("Channel",),
    "channels.in_app": ("in_app",),
    "jobs.task_handle": ("Task",),
    "jobs.attempt": ("Cancel", "Dead", "Outcome", "Retry", "RetryAfter", "Snooze"),
    "notifications.event": ("Content", "Digest", "Recipient", "Throttle"),
    "jobs.handle": ("Job",),
    "jobs.job": ("FireInfo", "NewJob"),
    "jobs.limits.limit": ("Limit", "Rate"),
    "notifications.recipients.address_confirmation": ("AddressConfirmation",),
    "notifications.recipients.quiet_hours": ("QuietHours",),
    "jobs.resource": ("Resource", "inject"),
    "jobs.retry": ("Backoff",),
    "schedules.rules.when": ("Cron", "Daily", "Every", "Once"),
    "worker.context": ("Context",),
    "worker.hooks": ("JobEvent",),
    "worker.iteration_sources": ("Keyset", "Lines"),
    "errors": (
        "CarrierUnavailable",
        "ConfigurationError",
        "DatabaseUnavailable",
        "DuplicateJob",
        "InvalidAddress",
        "InvalidArguments",
        "InvalidSchedule",
        "JobCancelled",
        "JobFailed",
        "JobNotFound",
        "LeaseLost",
        "PermissionDenied",
        "RejectedCallback",
        "ResourceUnavailable",
        "ResultUnavailable",
        "SchemaError",
        "SerenoError",
        "SignalTimeout",
        "StepOrderChanged",
        "UnknownTask",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sereno' has no attribute {name!r}")
    return getattr(import_module(f"sereno.{_HOME[name]}"), name)
