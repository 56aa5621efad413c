"""Settings from environment variables; no other module reads them."""

import os
from zoneinfo import ZoneInfo


def setting(name: str, default: str) -> str:
    return os.environ.get(f"REMINDERS_{name}", default)


def account(provider: str, *names: str) -> dict[str, str]:
    """Return the given settings of a provider: `REMINDERS_SMTP_HOST` is the `host` of `account("SMTP", "host")`."""
    found = {name: setting(f"{provider}_{name.upper()}", "") for name in names}
    return {name: value for name, value in found.items() if value}


EVERY = setting("EVERY", "5m")
ZONE = ZoneInfo(setting("TIMEZONE", "UTC"))
MAX_ATTEMPTS = int(setting("MAX_ATTEMPTS", "5"))
FIRST_RETRY = float(setting("FIRST_RETRY", "30"))

# Seconds before each retry: 30, 60, 120, 240.
DELAYS = tuple(FIRST_RETRY * 2**retry for retry in range(MAX_ATTEMPTS - 1))
# Seconds until the fallback channel: after all retries of the channel before, whose jitter adds up to a tenth.
FALLBACK_AFTER = 1.25 * sum(DELAYS)
