"""What a job requires of its worker (a version of its task, a key), and what a worker has.

A claim takes no job whose requirements its session does not meet (`sereno.meets`), so such a job waits, as a job of
an unknown task does. After `release_grace` without a worker that can run it, it becomes a dead letter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.encrypted_arguments import EncryptedArguments
from sereno.jobs.encryption import KeyRing
from sereno.jobs.settlement import end_links
from sereno.jobs.task import Registry, TaskDefinition

_sql = queries("jobs/requirements")
# Jobs that become dead letters in one statement.
PAGE = 1000


@dataclass(frozen=True, slots=True)
class UnmetRequirement:
    """What ready jobs of a queue and task require, and what the live workers of that queue and task have.

    `versions`: of the task. `keys`: ids of keys.
    """

    queue: str
    task: str
    requires: Mapping[str, Any]
    versions: list[int]
    keys: list[str]

    def __str__(self) -> str:
        return f"{wanted_text(self.task, self.requires)}; {_living(self)}"


def requirements_of(task: TaskDefinition) -> bytes | None:
    """Return what a job of this task requires of its worker, as JSON; None for nothing."""
    requires: dict[str, Any] = {}
    if task.version > 1:
        requires["version"] = task.version
    if isinstance(task.arguments, EncryptedArguments) and (key := task.arguments.key_id) is not None:
        requires["key"] = key
    return encoder.encode(requires) if requires else None


def capabilities_of(registry: Registry, keys: KeyRing) -> dict[str, Any] | None:
    """Return what a worker of these tasks has; None for nothing. `encrypting`: tasks with encrypted arguments."""
    versions = {task.name: task.version for task in registry if task.version > 1}
    encrypting = sorted(task.name for task in registry if isinstance(task.arguments, EncryptedArguments))
    if not versions and not encrypting and not keys.ids:
        return None
    return {"versions": versions, "keys": list(keys.ids), "encrypting": encrypting}


def unmet() -> Operation[list[UnmetRequirement]]:
    """Return the requirements of ready jobs that no live worker meets, at most 20."""
    rows = yield Statement(_sql["unmet"])
    return [UnmetRequirement(*row) for row in rows]


def unmet_by_job(job_id: int) -> Operation[UnmetRequirement | None]:
    """Return the requirements of a waiting job, if no live worker of its queue and task meets them."""
    rows = yield Statement(_sql["unmet_by_job"], {"id": job_id})
    return UnmetRequirement(*rows[0]) if rows else None


def tasks_without_key() -> Operation[list[str]]:
    """Return the tasks with encrypted arguments that a live worker without any key has."""
    rows = yield Statement(_sql["tasks_without_key"])
    return [task for (task,) in rows]


def bury_unmet(grace: float) -> Operation[list[tuple[int, str]]]:
    """Make dead letters of ready jobs that no worker could run for `grace` seconds; return (id, reason), one page.

    Its statements must run in one transaction: what waits for those jobs is continued or cancelled with them.
    """
    rows = yield Statement(_sql["bury_unmet"], {"grace": grace, "most": PAGE})
    yield from end_links([(job_id, link) for job_id, _, link, _ in rows if link is not None], "dead")
    return [(job_id, reason) for job_id, reason, *_ in rows]


def wanted_text(task: str, requires: Mapping[str, Any]) -> str:
    """Return the requirements in words: "a worker with version 2 of task export"."""
    words = []
    if "version" in requires:
        words.append(f"version {requires['version']} of task {task}")
    if "key" in requires:
        words.append(f"the encryption key {requires['key']}")
    return f"a worker with {' and '.join(words) or 'something that this version of sereno does not know'}"


def _living(unmet: UnmetRequirement) -> str:
    if not unmet.versions:
        return f"no live worker of queue {unmet.queue!r} knows the task"
    words = []
    if "version" in unmet.requires:
        words.append(f"version {', '.join(map(str, unmet.versions))}")
    if "key" in unmet.requires:
        words.append(f"the keys {', '.join(unmet.keys)}" if unmet.keys else "no keys")
    return f"live workers have {' and '.join(words)}"
