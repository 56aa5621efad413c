"""The registration of a worker's session: where it runs, what it serves, and what its code can run."""

import os
import socket
from collections.abc import Mapping

from sereno.database.statement import Operation
from sereno.jobs.encryption import key_ring
from sereno.jobs.requirements import capabilities_of
from sereno.jobs.task import Registry
from sereno.settings import Settings
from sereno.version import __version__
from sereno.worker.sessions import register


def register_worker(
    registry: Registry, queues: Mapping[str, int], settings: Settings
) -> Operation[tuple[int, dict[str, int]]]:
    """Register this process; return the id of its session and the highest floors that other sessions have published."""
    return register(
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        queues=queues,
        tasks=registry.names,
        lease=settings.lease,
        release=settings.release,
        capabilities=capabilities_of(registry, key_ring(settings.encryption_keys)),
    )
