"""Tools that change something. Each shows first what it would change, and does it when that is confirmed."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from sereno.access.identity import ROLES
from sereno.mcp.api_client import path_of
from sereno.mcp.confirmation import LASTS, Confirmations
from sereno.mcp.toolset import Call, Id, Name, Toolset

# Jobs, schedules or deliveries that one call changes; people change more with the command line or the dashboard.
MOST = 100

Ids = Annotated[list[Id], Field(min_length=1, max_length=MOST)]
Keys = Annotated[list[Name], Field(min_length=1, max_length=MOST)]
Note = Annotated[str | None, Field(max_length=500, description="The reason; people see it later.")]
Confirmation = Annotated[
    str | None,
    Field(max_length=100, description="Leave it out first; then, if the change is wanted, the value of that result."),
]

# Does the change; it is given a key, under which the API does it once.
Act = Callable[[str], Awaitable[Any]]


class ConfirmedChanges:
    """Changes in two steps: the first call returns what would change, the second one, with its value, does it."""

    def __init__(self, tools: Toolset, confirmations: Confirmations) -> None:
        self.api = tools.api
        self._confirmations = confirmations

    async def check_operator(self, context: Call) -> Mapping[str, Any]:
        """Return who calls, if they may change anything; the API checks it again."""
        who: Mapping[str, Any] = await self.api.get(context, "/me")
        if who["role"] not in ROLES[ROLES.index("operator") :]:
            raise ToolError(f"403: {who['name']!r:.60} may only read: this needs a token with the role operator")
        return who

    async def bulk(
        self, context: Call, path: str, chosen: Mapping[str, Any], more: Mapping[str, Any], confirmation: str | None
    ) -> Any:
        """Change chosen rows by an operation of the API that has a dry run."""
        await self.check_operator(context)
        effect = await self.api.post(context, path, {**chosen, **more, "dry_run": True})
        if effect["total"] == 0:
            raise ToolError("nothing would change: none of them exists, or is in a state that allows it")

        async def act(key: str) -> Any:
            return await self.api.post(context, path, {**chosen, **more}, key)

        counts = {name: value for name, value in effect.items() if value and name != "dry_run"}
        return await self.confirmed(context, {"operation": path, **chosen, **more, **counts}, confirmation, act)

    async def confirmed(self, context: Call, shown: Mapping[str, Any], confirmation: str | None, act: Act) -> Any:
        """Do a change that was confirmed as it is shown now; return what it would be otherwise."""
        signed = {"token": self.api.caller(context).token, "change": shown}
        if confirmation is not None and self._confirmations.accepts(confirmation, signed):
            return {"dry_run": False, "done": await act(confirmation)}
        is_refused = confirmation is not None
        return {
            "dry_run": True,
            "would_change": shown,
            "confirmation": self._confirmations.issue(signed),
            "next": f"{'The confirmation has expired, or the change differs from what was shown. ' * is_refused}"
            "Nothing was changed. Show this to the person you work for. If they want it, call again within "
            f"{LASTS // 60} minutes, with the same arguments and this confirmation.",
        }


def add_change_tools(tools: Toolset) -> None:
    """Add the tools that change something."""
    changes = ConfirmedChanges(tools, Confirmations())
    _add_job_changes(tools, changes)
    _add_queue_changes(tools, changes)
    _add_schedule_changes(tools, changes)

    @tools.writing
    async def requeue_deliveries(context: Call, delivery_ids: Ids, confirmation: Confirmation = None) -> Any:
        """Send failed and dead deliveries again, with fresh attempts. People receive these messages."""
        return await changes.bulk(context, "/deliveries/requeue", {"ids": delivery_ids}, {}, confirmation)


def _add_job_changes(tools: Toolset, changes: ConfirmedChanges) -> None:
    @tools.writing
    async def retry_jobs(context: Call, job_ids: Ids, confirmation: Confirmation = None) -> Any:
        """Run finished jobs again, such as dead ones, under their own ids and with all their tries."""
        return await changes.bulk(context, "/jobs/retry", {"ids": job_ids}, {}, confirmation)

    @tools.writing
    async def cancel_jobs(context: Call, job_ids: Ids, reason: Note = None, confirmation: Confirmation = None) -> Any:
        """Cancel jobs: waiting ones end at once, running ones are requested to stop."""
        return await changes.bulk(context, "/jobs/cancel", {"ids": job_ids}, {"reason": reason}, confirmation)


def _add_queue_changes(tools: Toolset, changes: ConfirmedChanges) -> None:
    api = tools.api

    async def change(context: Call, name: str, verb: str, body: Mapping[str, Any], confirmation: str | None) -> Any:
        await changes.check_operator(context)
        queues = (await api.get(context, "/queues"))["items"]
        found = next((each for each in queues if each["queue"] == name), None)
        if found is None:
            raise ToolError(f"there is no queue {name!r:.60}")
        shown = {"operation": verb, "queue": name, **body, "is_paused_now": found["paused_at"] is not None}
        path = path_of("queues", name, verb)
        return await changes.confirmed(context, shown, confirmation, lambda key: api.post(context, path, body, key))

    @tools.writing
    async def pause_queue(context: Call, queue: Name, note: Note = None, confirmation: Confirmation = None) -> Any:
        """Start no more jobs of a queue. Running jobs continue; new jobs are accepted and wait."""
        return await change(context, queue, "pause", {"note": note}, confirmation)

    @tools.writing
    async def resume_queue(context: Call, queue: Name, confirmation: Confirmation = None) -> Any:
        """Start jobs of a queue again."""
        return await change(context, queue, "resume", {}, confirmation)


def _add_schedule_changes(tools: Toolset, changes: ConfirmedChanges) -> None:
    @tools.writing
    async def pause_schedules(context: Call, keys: Keys, note: Note = None, confirmation: Confirmation = None) -> Any:
        """Pause schedules until they are resumed. Running jobs continue."""
        return await changes.bulk(context, "/schedules/pause", {"keys": keys}, {"note": note}, confirmation)

    @tools.writing
    async def resume_schedules(context: Call, keys: Keys, confirmation: Confirmation = None) -> Any:
        """Resume schedules, from now on. Missed instants are not run."""
        return await changes.bulk(context, "/schedules/resume", {"keys": keys}, {}, confirmation)
