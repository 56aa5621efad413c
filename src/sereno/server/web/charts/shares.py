"""Shares of a total, hour by hour."""

from datetime import datetime, timedelta

HOURS = 24


def places(now: datetime) -> list[datetime]:
    """Return the last 24 hours, the current one last; hours of UTC, as figures are stored."""
    last = now.replace(minute=0, second=0, microsecond=0)
    return [last - timedelta(hours=back) for back in range(HOURS - 1, -1, -1)]


def percent(part: float, whole: float) -> float:
    return part / whole * 100 if whole > 0 else 0.0
