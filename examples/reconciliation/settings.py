"""Settings from environment variables."""

import os
from pathlib import Path

PARTNER_URL = os.environ.get("RECONCILIATION_PARTNER_URL", "http://127.0.0.1:8700")
PARTNER_TOKEN = os.environ.get("RECONCILIATION_PARTNER_TOKEN", "for-the-stand-in")
# Where files are stored: a directory that all workers share.
STORAGE = Path(os.environ.get("RECONCILIATION_STORAGE", ".reconciliation"))

# Limits over all workers: concurrent jobs, and starts per second.
AT_ONCE = int(os.environ.get("RECONCILIATION_AT_ONCE", "10"))
RATE = float(os.environ.get("RECONCILIATION_RATE", "20"))
# Interval between polls of a report that is being prepared.
POLL_EVERY = os.environ.get("RECONCILIATION_POLL_EVERY", "1m")

# The webhook of a Discord channel; it is a secret. Without it, failures go to the inbox.
DISCORD_HOOK = os.environ.get("RECONCILIATION_DISCORD_HOOK", "")
DISCORD_URL = os.environ.get("RECONCILIATION_DISCORD_URL", "https://discord.com")
