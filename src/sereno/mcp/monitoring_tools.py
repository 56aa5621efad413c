"""Tools about the system: who am I, status, figures, doctor, queues."""

from typing import Annotated, Any

from pydantic import Field

from sereno.mcp.toolset import Call, Name, Seconds, Toolset

Step = Annotated[float, Field(ge=60, le=86400, description="Seconds per step.")]


def add_monitoring_tools(tools: Toolset) -> None:
    """Add the tools about the system."""
    api = tools.api

    @tools.reading
    async def current_user(context: Call) -> Any:
        """Show the name, the role (viewer, operator, admin) and the tenant of the token that is in use."""
        return await api.get(context, "/me")

    @tools.reading
    async def status(context: Call) -> Any:
        """Show workers, the scheduler, queues, dead letters and pauses. Not for tokens of one tenant."""
        return await api.get(context, "/status")

    @tools.reading
    async def attention(context: Call) -> Any:
        """List conditions that need attention now, the worst first."""
        return await api.get(context, "/attention")

    @tools.reading
    async def doctor(context: Call) -> Any:
        """Check the installation for problems, with what helps against each. Not for tokens of one tenant."""
        return await api.get(context, "/doctor")

    @tools.reading
    async def queues(context: Call) -> Any:
        """List queues with what waits, runs, and is paused. Not for tokens of one tenant."""
        return await api.get(context, "/queues")

    @tools.reading
    async def job_figures(
        context: Call, since: Seconds = 3600, step: Step = 300, queue: Name | None = None, task: Name | None = None
    ) -> Any:
        """Show how many attempts ended, how long they waited and ran, by steps. Not for tokens of one tenant."""
        return await api.get(context, "/figures/jobs", since=since, step=step, queue=queue, task=task)
