"""Everything that differs from place to place, from the environment."""

import os
from pathlib import Path

PARTNER_URL = os.environ.get("RECONCILIATION_PARTNER_URL", "http://127.0.0.1:8700")
PARTNER_TOKEN = os.environ.get("RECONCILIATION_PARTNER_TOKEN", "for-the-stand-in")
# Where files are kept: a directory that all workers see.
STORAGE = Path(os.environ.get("RECONCILIATION_STORAGE", ".reconciliation"))

# The whole house together: jobs at once, and starts in a second.
AT_ONCE = int(os.environ.get("RECONCILIATION_AT_ONCE", "10"))
RATE = float(os.environ.get("RECONCILIATION_RATE", "20"))
# Between two looks at a report that the partner is still preparing.
POLL_EVERY = os.environ.get("RECONCILIATION_POLL_EVERY", "1m")

# The webhook of a channel of Discord; whoever knows it can write there. Without it, failures are told in the inbox.
DISCORD_HOOK = os.environ.get("RECONCILIATION_DISCORD_HOOK", "")
DISCORD_URL = os.environ.get("RECONCILIATION_DISCORD_URL", "https://discord.com")
