"""The peers that store schedules in PostgreSQL, each with as many schedules as it can hold."""

from dataclasses import dataclass
from typing import Literal

from .catalogue import Peer

# The planned instant is part of the workflow's name.
DBOS_LATENESS = """
    select created_at / 1000.0 - extract(epoch from substring(workflow_uuid from '^sched-s[0-9]+-(.*)$')::timestamptz)
    from dbos.workflow_status
    where workflow_uuid like 'sched-%%' and created_at >= %(begin)s * 1000 and created_at < %(end)s * 1000
"""

# The job that creates the jobs of a minute stores that minute; when it completes, the jobs exist.
PGBOSS_LATENESS = """
    select extract(epoch from completed_on) - extract(epoch from (data ->> 'slot')::timestamp at time zone 'UTC')
    from pgboss.job
    where name = '__pgboss__send-it' and state = 'completed'
      and completed_on >= to_timestamp(%(begin)s) and completed_on < to_timestamp(%(end)s)
"""


@dataclass(frozen=True)
class SchedulePeer:
    # Environment and program; no jobs are run.
    peer: Peer
    schedules: int
    # Time from one instant of a schedule to the next.
    seconds: int
    # A query for the seconds by which each fire in a window was late; empty if the program writes them to the tally.
    lateness: str = ""

    @property
    def name(self) -> str:
        """Name of the product; the suffix tells its program from the one for jobs."""
        return self.peer.name.removesuffix("_schedules")


def _peer(name: str, title: str, language: Literal["python", "node"]) -> Peer:
    return Peer(name, title, described="", language=language, jobs=0, pending="")


SCHEDULE_PEERS = (
    SchedulePeer(
        _peer("apscheduler", "APScheduler", "python"),
        schedules=10_000,
        seconds=100,
    ),
    SchedulePeer(
        _peer("pgboss_schedules", "pg-boss", "node"),
        schedules=10_000,
        seconds=60,
        lateness=PGBOSS_LATENESS,
    ),
    SchedulePeer(
        _peer("dbos", "DBOS", "python"),
        # DBOS runs one thread per schedule.
        schedules=1_000,
        seconds=60,
        lateness=DBOS_LATENESS,
    ),
)
