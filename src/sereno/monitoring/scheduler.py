"""A scheduler that also watches the alert rules and reads the gauges of the database while it leads."""

from sereno.monitoring.alerts.watcher import AlertWatcher
from sereno.monitoring.gauges.reader import GaugeReader
from sereno.schedules.scheduler import Scheduler
from sereno.settings import Settings


def monitored_scheduler(url: str, settings: Settings) -> Scheduler:
    """Return a scheduler with an alert watcher, and with a reader of gauges where metrics are served."""
    scheduler = Scheduler(url, settings)
    scheduler.attach(AlertWatcher(url, settings, lambda: scheduler.leads))
    if settings.health_port is not None and settings.gauge_interval:
        scheduler.attach(GaugeReader(url, settings, scheduler))
    return scheduler
