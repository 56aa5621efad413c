"""Settings from environment variables. README.md has the table of all of them."""

import os
from pathlib import Path


def _words(name: str, default: str) -> tuple[str, ...]:
    """Return a list, whose items are separated by commas or spaces."""
    return tuple(os.environ.get(name, default).replace(",", " ").split())


def _one_of(name: str, *choices: str) -> str:
    """Return one of the choices; the first is the default."""
    chosen = os.environ.get(name, choices[0])
    if chosen not in choices:
        raise SystemExit(f"{name} is {chosen!r}: it must be one of {', '.join(choices)}")
    return chosen


# The partner, and the credentials of our application there.
PARTNER_URL = os.environ.get("RECONCILIATION_PARTNER_URL", "https://merchant-api.ifood.com.br")
CLIENT_ID = os.environ.get("RECONCILIATION_CLIENT_ID", "")
CLIENT_SECRET = os.environ.get("RECONCILIATION_CLIENT_SECRET", "")
# Hosts that reports are downloaded from, by https and never in a private network. An origin, such as
# http://127.0.0.1:8700, is allowed exactly as it is.
DOWNLOAD_HOSTS = _words(
    "RECONCILIATION_DOWNLOAD_HOSTS", "*.s3.amazonaws.com *.s3.*.amazonaws.com s3.*.amazonaws.com *.ifood.com.br"
)

# Where files are stored: file:///directory, s3://bucket/prefix, gs://… or az://…; a path is a directory.
STORAGE = os.environ.get("RECONCILIATION_STORAGE", str(Path(".reconciliation").absolute()))

# Which month is fetched: each night the month of the day before, or once the month that has ended.
MONTH = _one_of("RECONCILIATION_MONTH", "running", "ended")
# Time zone and hour of accounts that have none of their own.
ZONE = os.environ.get("RECONCILIATION_ZONE", "America/Sao_Paulo")
HOUR = os.environ.get("RECONCILIATION_HOUR", "03:00")

# Attempts in all, and the delays between them; the last delay is repeated if there are more attempts.
ATTEMPTS = int(os.environ.get("RECONCILIATION_ATTEMPTS", "4"))
DELAYS = _words("RECONCILIATION_DELAYS", "15m 30m 60m")
# Limits over all workers: concurrent jobs, and starts per second.
AT_ONCE = int(os.environ.get("RECONCILIATION_AT_ONCE", "10"))
RATE = float(os.environ.get("RECONCILIATION_RATE", "20"))
# Interval between polls of a report that is being prepared, and when to give up.
POLL_EVERY = os.environ.get("RECONCILIATION_POLL_EVERY", "1m")
LONGEST_WAIT = os.environ.get("RECONCILIATION_LONGEST_WAIT", "24h")

# How long a night of an account is remembered, so that it runs once; and when files that a newer one has replaced are
# deleted.
REMEMBER = os.environ.get("RECONCILIATION_REMEMBER", "90d")
KEEP_REPLACED = os.environ.get("RECONCILIATION_KEEP_REPLACED", "30d")

# The webhook of a Discord channel; it is a secret. Without it, failures go to the inbox.
DISCORD_HOOK = os.environ.get("RECONCILIATION_DISCORD_HOOK", "")
DISCORD_URL = os.environ.get("RECONCILIATION_DISCORD_URL", "https://discord.com")
REPORT_EVERY = os.environ.get("RECONCILIATION_REPORT_EVERY", "1m")
