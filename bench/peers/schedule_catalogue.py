"""The peers that keep schedules in PostgreSQL, with as many of them as each can hold."""

from dataclasses import dataclass

from .catalogue import Peer

# The instant is part of the workflow's name.
DBOS_LATENESS = """
    select created_at / 1000.0 - extract(epoch from substring(workflow_uuid from '^sched-s[0-9]+-(.*)$')::timestamptz)
    from dbos.workflow_status
    where workflow_uuid like 'sched-%%' and created_at >= %(begin)s * 1000 and created_at < %(end)s * 1000
"""

# The job that makes the jobs knows the minute that it is for; when it is done, they are there.
PGBOSS_LATENESS = """
    select extract(epoch from completed_on) - extract(epoch from (data ->> 'slot')::timestamp at time zone 'UTC')
    from pgboss.job
    where name = '__pgboss__send-it' and state = 'completed'
      and completed_on >= to_timestamp(%(begin)s) and completed_on < to_timestamp(%(end)s)
"""


@dataclass(frozen=True)
class SchedulePeer:
    # Its environment and its program; no jobs are worked off.
    peer: Peer
    schedules: int
    # From one instant of a schedule to the next.
    seconds: int
    # The seconds by which each fire between two moments was late; empty when the program writes them to the tally.
    lateness: str = ""

    @property
    def name(self) -> str:
        """Of the product: its program for jobs has that name already."""
        return self.peer.name.removesuffix("_schedules")


SCHEDULE_PEERS = (
    SchedulePeer(
        Peer(name="apscheduler", language="python", jobs=0, pending=""),
        schedules=10_000,
        seconds=100,
    ),
    SchedulePeer(
        Peer(name="pgboss_schedules", language="node", jobs=0, pending=""),
        schedules=10_000,
        seconds=60,
        lateness=PGBOSS_LATENESS,
    ),
    SchedulePeer(
        Peer(name="dbos", language="python", jobs=0, pending=""),
        # One thread for each of them.
        schedules=1_000,
        seconds=60,
        lateness=DBOS_LATENESS,
    ),
)
