"""Tools about jobs: search, show, explain, dead letters, error groups, traces."""

from typing import Annotated, Any, Literal

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from sereno.mcp.api_client import path_of
from sereno.mcp.toolset import Before, Call, Id, Limit, Name, Search, Toolset

# What `dead_letters` shows of a job.
_DEAD = ("id", "task", "queue", "tenant", "finished_at", "failures", "reason", "error_type", "error_message")

Since = Annotated[str, Field(max_length=20, description="Age of the oldest failures, at most 30 days: 1h, 24h, 7d.")]


def add_job_tools(tools: Toolset) -> None:
    """Add the tools about jobs."""
    api = tools.api

    @tools.reading
    async def search_jobs(context: Call, q: Search = None, limit: Limit = 20, before: Before = None) -> Any:
        """Search live and finished jobs, newest first.

        Terms of `q`: state:dead task:send_invoice queue:mail tenant:r42 error:timeout created:2h.. attempts:>3.
        """
        return await api.get(context, "/jobs", q=q, limit=limit, before=before)

    @tools.reading
    async def show_job(context: Call, job_id: Id) -> Any:
        """Show one job with its arguments, attempts, errors, steps and progress. Likely secrets are masked."""
        return await api.get(context, path_of("jobs", job_id))

    @tools.reading
    async def why_job(context: Call, job_id: Id) -> Any:
        """Explain why a job is in its state: what it waits for, or why it failed."""
        return await api.get(context, path_of("jobs", job_id, "why"))

    @tools.reading
    async def dead_letters(context: Call, q: Search = None, limit: Limit = 20, before: Before = None) -> Any:
        """List jobs that used up their tries, newest first, with the reason of each. `q` narrows the search."""
        found = await api.get(context, "/jobs", q=q, states="dead", limit=limit, before=before)
        items = [{name: job[name] for name in _DEAD} for job in found["items"]]
        return {"items": items, "next": found["next"]}

    @tools.reading
    async def error_groups(
        context: Call, since: Since = "24h", sort: Literal["last", "count"] = "last", limit: Limit = 20
    ) -> Any:
        """List failures grouped by cause: since when, how often, how many are dead. Not for tokens of one tenant."""
        return await api.get(context, "/errors", since=since, sort=sort, limit=limit)


def add_trace_tools(tools: Toolset) -> None:
    """Add the tools about traces."""
    api = tools.api

    @tools.reading
    async def find_traces(
        context: Call, job_id: Id | None = None, delivery_id: Id | None = None, subject: Name | None = None
    ) -> Any:
        """Find the traces of a job, of a delivery, or of events by their subject: give one of the three."""
        if sum(each is not None for each in (job_id, delivery_id, subject)) != 1:
            raise ToolError("give one of job_id, delivery_id and subject")
        return await api.get(context, "/traces", job=job_id, delivery=delivery_id, subject=subject)

    @tools.reading
    async def show_trace(context: Call, trace_id: Name) -> Any:
        """Show one trace: the schedules, jobs with their attempts, events and deliveries of one cause."""
        return await api.get(context, path_of("traces", trace_id))
