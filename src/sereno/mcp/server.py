"""The MCP server: the tools, over stdin and stdout or over HTTP."""

from collections.abc import Callable
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx2
from mcp.server.mcpserver import Context, MCPServer

from sereno.mcp.api_client import TIMEOUT, APIClient, Caller
from sereno.mcp.change_tools import add_change_tools
from sereno.mcp.job_tools import add_job_tools, add_trace_tools
from sereno.mcp.monitoring_tools import add_monitoring_tools
from sereno.mcp.notification_tools import add_notification_tools
from sereno.mcp.schedule_tools import add_schedule_tools
from sereno.mcp.toolset import UNTRUSTED, Toolset
from sereno.version import __version__

INSTRUCTIONS = (
    "sereno runs jobs, schedules and notifications on PostgreSQL. Begin with `attention` and `status`; for a job, "
    f"`show_job` and `why_job` say what happened. {UNTRUSTED}"
)
CHANGES = (
    " Tools that change something return first what they would change: show that to the person you work for, and "
    "confirm it only when they want it."
)


def mcp_server(
    url: str, http: httpx2.AsyncClient, caller: Callable[[Context[Any, Any]], Caller], *, allow_writes: bool
) -> MCPServer[Any]:
    """Return the server for the API at a URL. `allow_writes`: with the tools that change something."""
    instructions = INSTRUCTIONS + CHANGES if allow_writes else INSTRUCTIONS
    server: MCPServer[Any] = MCPServer(
        "sereno", instructions=instructions, version=__version__, log_level="WARNING", subscriptions=False
    )
    tools = Toolset(server, APIClient(url, http, caller))
    for add in (
        add_job_tools,
        add_trace_tools,
        add_monitoring_tools,
        add_schedule_tools,
        add_notification_tools,
    ):
        add(tools)
    if allow_writes:
        add_change_tools(tools)
    return server


def http_client() -> httpx2.AsyncClient:
    """Return a client that keeps nothing of one caller for another, and uses no proxy of the environment."""
    cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
    return httpx2.AsyncClient(timeout=TIMEOUT, trust_env=False, follow_redirects=False, cookies=cookies)


async def serve_stdio(url: str, token: str | None, *, allow_writes: bool) -> None:
    """Serve one client over stdin and stdout, with this token, until stdin ends."""
    caller = Caller(token)
    async with http_client() as http:
        await mcp_server(url, http, lambda _: caller, allow_writes=allow_writes).run_stdio_async()
