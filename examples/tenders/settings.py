"""Settings from environment variables `TENDERS_…`. The default intervals are those of the seed."""

import os

DEFAULTS = {
    "PAGE_URL": "http://127.0.0.1:8801",
    "API_URL": "http://127.0.0.1:8802",
    "API_TICKET": "",
    "EXPO_URL": "https://exp.host",
    "EXPO_ACCESS_TOKEN": "",
    "INGEST_EVERY": "2m",
    "CONFIRM_EVERY": "1m",
    # Expo has its receipts after a quarter of an hour.
    "RECEIPTS_AFTER": "900",
    "CLEANUP_CRON": "17 3 * * *",
    "ARCHIVE_EXPORT_CRON": "47 3 * * *",
    "ARCHIVE_URL": "disk",
}


def setting(name: str) -> str:
    """Return the current value: the environment is read at each call."""
    return os.environ.get(f"TENDERS_{name}") or DEFAULTS[name]
