"""The tasks whose jobs this server can enqueue: those of its own application, and those that workers declared."""

from sereno.access.identity import Principal
from sereno.jobs import task_rows
from sereno.jobs.task import OWN_TASKS
from sereno.jobs.task_rows import DeclaredTask, declared_by_code
from sereno.server.shared.context import ServerContext


async def known_tasks(context: ServerContext, who: Principal) -> list[DeclaredTask]:
    """Return them by name; for a tenant's user only those that are open to tenants.

    The server's own application decides what a task looks like, as it does when the job is enqueued.
    """
    allowed = await context.open_tasks(who)
    found = {task.name: task for task in await context.read(task_rows.declared())}
    own = (task for task in context.app.registry if not task.name.startswith(OWN_TASKS))
    found |= {task.name: declared_by_code(task) for task in own}
    return [found[name] for name in sorted(found) if allowed is None or name in allowed]
