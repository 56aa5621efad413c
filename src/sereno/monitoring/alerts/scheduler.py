"""A scheduler that also watches the alert rules while it leads."""

from sereno.monitoring.alerts.watcher import AlertWatcher
from sereno.schedules.scheduler import Scheduler
from sereno.settings import Settings


def scheduler_with_alerts(url: str, settings: Settings) -> Scheduler:
    """Return a scheduler with an alert watcher attached to it."""
    scheduler = Scheduler(url, settings)
    scheduler.attach(AlertWatcher(url, settings, lambda: scheduler.leads))
    return scheduler
