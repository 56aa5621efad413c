"""What the environment says. Nothing else in this program reads it."""

import os
from zoneinfo import ZoneInfo


def setting(name: str, default: str) -> str:
    return os.environ.get(f"REMINDERS_{name}", default)


def account(provider: str, *names: str) -> dict[str, str]:
    """The settings of a provider that are given: `REMINDERS_SMTP_HOST` is the `host` of `account("SMTP", "host")`."""
    found = {name: setting(f"{provider}_{name.upper()}", "") for name in names}
    return {name: value for name, value in found.items() if value}


EVERY = setting("EVERY", "5m")
ZONE = ZoneInfo(setting("TIMEZONE", "UTC"))
MAX_ATTEMPTS = int(setting("MAX_ATTEMPTS", "5"))
FIRST_RETRY = float(setting("FIRST_RETRY", "30"))

# Seconds before each new try: 30, 60, 120, 240.
DELAYS = tuple(FIRST_RETRY * 2**tries for tries in range(MAX_ATTEMPTS - 1))
# The next channel comes after all tries of the one before, not beside them: a wait may be a tenth longer than it says.
FALLBACK_AFTER = 1.25 * sum(DELAYS)
