"""Settings from environment variables. The modes keep the names of the original design."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from sereno import ConfigurationError

# The largest number accepted; an hour in milliseconds.
MOST = 3_600_000
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True)
class Settings:
    """`is_worker`: this process only runs jobs. `runs_jobs`: it runs jobs, alone or besides the API.

    `interval`: seconds between two cycles. `one_at_a_time`: one job of each queue at a time, over all workers.
    `retries`: of a job, before it is a dead letter.
    """

    is_worker: bool
    runs_jobs: bool
    interval: float
    one_at_a_time: bool
    crm_url: str
    rate: int
    retries: int
    follow_up_hours: int
    keep_messages_days: int
    host: str
    port: int
    metrics_token: str | None


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read WORKER_MODE and JOB_RUNNER_ENABLED, by default true for a worker and false for an API, and the rest."""
    is_worker = _flag(environment, "WORKER_MODE", default=False)
    runs_jobs = _flag(environment, "JOB_RUNNER_ENABLED", default=is_worker)
    if is_worker and not runs_jobs:
        raise ConfigurationError(
            "WORKER_MODE=1 and JOB_RUNNER_ENABLED=false contradict each other: a worker has to run jobs. Change one"
        )
    return Settings(
        is_worker,
        runs_jobs,
        interval=_number(environment, "JOB_RUNNER_INTERVAL_MS", "5000") / 1000,
        one_at_a_time=_flag(environment, "SEPARATE_WORKER_ONE_AT_A_TIME", default=False),
        crm_url=environment.get("SEPARATE_WORKER_CRM_URL", "http://127.0.0.1:9001").rstrip("/"),
        rate=_number(environment, "SEPARATE_WORKER_RATE", "5"),
        retries=_number(environment, "SEPARATE_WORKER_RETRIES", "6", least=0),
        follow_up_hours=_number(environment, "SEPARATE_WORKER_FOLLOW_UP_HOURS", "24", least=0),
        keep_messages_days=_number(environment, "SEPARATE_WORKER_KEEP_MESSAGES_DAYS", "30"),
        host=environment.get("SEPARATE_WORKER_HOST", "127.0.0.1"),
        port=_number(environment, "SEPARATE_WORKER_PORT", "8000", least=0),
        metrics_token=environment.get("SEPARATE_WORKER_METRICS_TOKEN") or None,
    )


def _flag(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    word = environment.get(name, "").strip().lower()
    if word not in ("", *YES, *NO):
        raise ConfigurationError(f"{name}={word!r:.40}: write 1 or 0")
    return word in YES if word else default


def _number(environment: Mapping[str, str], name: str, default: str, *, least: int = 1) -> int:
    word = environment.get(name) or default
    if not (word.isascii() and word.isdecimal()) or not least <= int(word) <= MOST:
        raise ConfigurationError(f"{name}={word!r:.40}: write a whole number, from {least} to {MOST:,}")
    return int(word)
