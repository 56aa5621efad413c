"""Settings from environment variables `TENDERS_…`; the README lists those of the original design beside them."""

import os

from sereno.duration import seconds

DEFAULTS = {
    # The partners.
    "SEARCH_URL": "https://www.mercadopublico.cl",
    "SEARCH_PAGES": "20",
    "API_URL": "https://api.mercadopublico.cl",
    "API_TICKET": "",
    # The API refuses requests of one ticket that come at the same time or within some three seconds.
    "API_PAUSE": "3.5s",
    "EXPO_URL": "https://exp.host",
    "EXPO_ACCESS_TOKEN": "",
    # The cycles.
    "INGEST_EVERY": "2m",
    "DISPATCH_EVERY": "1m",
    "RECEIPT_EVERY": "1m",
    "CLEANUP_CRON": "17 3 * * *",
    "ARCHIVE_EXPORT_CRON": "47 3 * * *",
    "CRON_ZONE": "America/Santiago",
    # Times between two attempts: to fetch details, and to send a push. One attempt more than there are times.
    "DETAIL_WAITS": "10s 1m 5m 10m",
    "PUSH_WAITS": "1m 2m 4m 8m 16m 32m 60m 60m",
    # Expo has its receipts after a quarter of an hour.
    "RECEIPTS_AFTER": "15m",
    # Retention.
    "HOT_MONTHS": "12",
    "RETENTION_DAYS": "90",
    "ARCHIVE_URL": "disk",
    # New phones in a minute, over all processes of the API.
    "REGISTRATIONS_PER_MINUTE": "600",
}
DAYS_OF_A_YEAR = 365


def setting(name: str) -> str:
    """Return the current value: the environment is read at each call."""
    return os.environ.get(f"TENDERS_{name}") or DEFAULTS[name]


def waits(name: str) -> list[float]:
    """Return the times of a setting that lists several, in seconds."""
    return [seconds(each) for each in setting(name).replace(",", " ").split()]


def hot_days() -> int:
    """Return after how many days tenders and events are archived."""
    return round(int(setting("HOT_MONTHS")) * DAYS_OF_A_YEAR / 12)
