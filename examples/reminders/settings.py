"""Settings from environment variables; no other module reads them.

The variables `NOTIFICATION_…` and `APP_TIMEZONE` have the names and the defaults of the original design.
"""

import os
from typing import Any
from zoneinfo import ZoneInfo

from sereno.errors import ConfigurationError

# The queue of the jobs that send reminders.
DISPATCH_QUEUE = "notifications.dispatch"
# Values of NOTIFICATION_QUEUE_DRIVER for the queue in PostgreSQL, and how that of a carried queue begins.
IN_POSTGRES = ("pgboss", "postgres")
CARRIED = ("jetstream://", "jetstream+tls://")
FLAGS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def setting(name: str, default: str) -> str:
    """Return a variable; an empty one counts as not set."""
    return os.environ.get(name) or default


def flag(name: str, default: str) -> bool:
    value = setting(name, default).lower()
    if value not in FLAGS:
        raise ConfigurationError(f"{name} is true or false, not {value!r:.40}")
    return FLAGS[value]


def count(name: str, default: str) -> int:
    value = setting(name, default)
    if not value.isdecimal() or int(value) < 1:
        raise ConfigurationError(f"{name} is a number from 1 on, not {value!r:.40}")
    return int(value)


def account(provider: str, *names: str) -> dict[str, str]:
    """Return the given settings of a provider: `REMINDERS_SMTP_HOST` is the `host` of `account("SMTP", "host")`."""
    found = {name: setting(f"REMINDERS_{provider}_{name.upper()}", "") for name in names}
    return {name: value for name, value in found.items() if value}


def carriers() -> dict[str, str] | None:
    """Return what carries the queue, by the name of the queue; None if PostgreSQL does, or SERENO_CARRIERS decides."""
    driver = setting("NOTIFICATION_QUEUE_DRIVER", IN_POSTGRES[0])
    if driver in IN_POSTGRES:
        return None
    if not driver.startswith(CARRIED):
        raise ConfigurationError(
            f"NOTIFICATION_QUEUE_DRIVER is {' or '.join(IN_POSTGRES)}, or the address of NATS servers, such as "
            f"jetstream://a:4222,b:4222,c:4222?replicas=3, and not {driver.partition('@')[0]!r:.40}"
        )
    return {DISPATCH_QUEUE: driver}


def active_channels() -> list[str] | None:
    """Return NOTIFICATION_ACTIVE_CHANNELS in lower case; None if it is not set."""
    names = [name.strip().lower() for name in setting("NOTIFICATION_ACTIVE_CHANNELS", "").split(",")]
    return [name for name in names if name] or None


def engine_settings() -> dict[str, Any]:
    """Return the settings of sereno that this program sets; other ones come from SERENO_… as usual."""
    chosen = {"channels": active_channels(), "carriers": carriers()}
    return {"notifications_queue": DISPATCH_QUEUE} | {name: value for name, value in chosen.items() if value}


def delays(attempts: int, first: float, *, backoff: bool) -> tuple[float, ...]:
    """Return the seconds before each retry: 30, 60, 120, 240; without backoff 30 each time."""
    return tuple(first * (2**retry if backoff else 1) for retry in range(attempts - 1))


CRON_ENABLED = flag("NOTIFICATION_CRON_ENABLED", "true")
CRON_EXPRESSION = setting("NOTIFICATION_CRON_EXPRESSION", "*/5 * * * *")
WORKER_ENABLED = flag("NOTIFICATION_WORKER_ENABLED", "true")
# Where the API listens.
HOST = setting("REMINDERS_HOST", "127.0.0.1")
PORT = int(setting("REMINDERS_PORT", "8000"))
DEAD_LETTER_QUEUE = setting("NOTIFICATION_DLQ_NAME", "notifications.dead-letter")
TIMEZONE = setting("APP_TIMEZONE", "UTC")
ZONE = ZoneInfo(TIMEZONE)

MAX_ATTEMPTS = count("NOTIFICATION_MAX_ATTEMPTS", "5")
FIRST_RETRY = float(setting("REMINDERS_FIRST_RETRY", "30"))
DELAYS = delays(MAX_ATTEMPTS, FIRST_RETRY, backoff=flag("NOTIFICATION_RETRY_BACKOFF", "true"))
# Seconds until the fallback channel: after all retries of the channel before, whose jitter adds up to a tenth.
FALLBACK_AFTER = 1.25 * sum(DELAYS) or FIRST_RETRY
