"""What a worker remembers of limiters: only jobs that have ended and do not run again."""

from typing import Any

from sereno.jobs.limits.lane_claim import KnownLimiter, LaneClaim
from sereno.worker.claiming.known_limiters import KnownLimiters

LIMITER, JOB = 1, 7


def claimed(**fields: Any) -> LaneClaim:
    whole: dict[str, Any] = {
        "missed": set(),
        "more": set(),
        "is_contended": False,
        "blocking": set(),
        "after": {},
        "elsewhere": set(),
        "lacks_limiters": None,
        "next_check": None,
    }
    return LaneClaim(**(whole | fields))


def test_jobs_that_ended_are_known_while_the_limiter_has_the_version_of_this_worker() -> None:
    memory = KnownLimiters()
    memory.learn({}, claimed(holding={JOB: [LIMITER]}, versions={LIMITER: 5}))
    assert memory.known() == {}
    memory.ended(JOB, [LIMITER])
    assert memory.known() == {LIMITER: KnownLimiter(5, frozenset([JOB]))}
    memory.learn(memory.known(), claimed(foreign={LIMITER}))
    assert memory.known() == {}


def test_a_job_that_runs_again_has_not_ended() -> None:
    """It ended while the limiter had the version of another worker, was requeued, and was claimed here."""
    memory = KnownLimiters()
    memory.ended(JOB, [LIMITER])
    memory.learn({}, claimed(holding={JOB: [LIMITER]}, versions={LIMITER: 5}))
    assert all(JOB not in known.ended for known in memory.known().values())
