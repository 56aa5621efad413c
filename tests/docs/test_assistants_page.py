"""The page of assistants: its configurations are accepted, and its tools are those of the server."""

import json
import re

import click

from sereno.cli.main import main
from sereno.mcp.api_client import Caller
from sereno.mcp.server import http_client, mcp_server
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "operate" / "assistants.md"


def test_the_configurations_of_clients_are_accepted() -> None:
    started, over_http = (
        json.loads(block.code)["mcpServers"]["sereno"] for block in blocks(PAGE) if block.language == "json"
    )
    assert started["command"] == "sereno"
    name, *options = started["args"]
    command = main.get_command(click.Context(main), name)
    assert command is not None
    command.make_context(name, options)
    assert set(started["env"]) == {"SERENO_TOKEN_FILE"}
    assert over_http["url"] == "http://127.0.0.1:8766/mcp"
    assert over_http["headers"]["Authorization"].startswith("Bearer srn_")


async def test_the_page_lists_every_tool() -> None:
    async with http_client() as http:
        server = mcp_server("http://127.0.0.1:1", http, lambda _: Caller(None), allow_writes=True)
        tools = {tool.name for tool in await server.list_tools()}
    text = PAGE.read_text().partition("## Tools that read")[2].partition("## Text that others wrote")[0]
    named = set(re.findall(r"`([a-z_]+)`", text))
    assert tools <= named
    assert named - tools == set()
