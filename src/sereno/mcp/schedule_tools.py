"""Tools about schedules."""

from typing import Annotated, Any

from pydantic import Field

from sereno.mcp.toolset import Call, Limit, Name, Search, Toolset

After = Annotated[str | None, Field(max_length=200, description="The `next` of the previous page.")]
Instants = Annotated[int, Field(ge=0, le=50, description="How many of its past and of its next instants.")]


def add_schedule_tools(tools: Toolset) -> None:
    """Add the tools about schedules."""
    api = tools.api

    @tools.reading
    async def search_schedules(context: Call, q: Search = None, limit: Limit = 20, after: After = None) -> Any:
        """Search schedules by key, with their rule and their last and next run.

        Terms of `q`: state:paused task:menu tenant:r42 next:..tomorrow.
        """
        return await api.get(context, "/schedules", q=q, limit=limit, after=after)

    @tools.reading
    async def show_schedule(context: Call, key: Name, instants: Instants = 10) -> Any:
        """Show one schedule with its past instants, the jobs and outcomes of each, and its next instants."""
        # As a parameter, because a path cannot hold every key.
        return await api.get(context, "/schedules/-", key=key, fires=instants, n=instants)
