"""Write docs/reference/api.md: every operation of the API, as its OpenAPI document has it.

    make reference

A test compares the page with the document.
"""

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx

from sereno import Sereno
from sereno.server import asgi

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "api.md"

BEGINNING = """# The API

What the command line can do, over HTTP: `sereno server` answers under `/api/v1`, and its OpenAPI 3.1 document is at
`/api/v1/openapi.json`. Written by `make reference` from that document.

- **Who**: `Authorization: Bearer srn_…` ([tokens](../operate/security.md#tokens)). Beside each operation stands the
  role that it needs, and a dot where a token of one tenant may use it too; it then sees and changes that tenant's
  things alone.
- **Errors** are problems as RFC 9457 describes them: `status`, `title`, and a `detail` that says what happened and
  what helps. 401 without a token, 403 without the right, 404 for what is not there or not yours, 409 for what cannot be
  done now, 422 for invalid input.
- **Lists** come in pages: `items`, and `next`, to be given as `before` for the page after; or `page` and `page_size`,
  for people.
- **Search**: `q` takes the [search grammar](search.md) wherever a list has one.
- **Once**: a POST with an `Idempotency-Key` is done once within a day; the second time it says what it said before.
- **Bulk**: `dry_run` says what would be touched; `in_background` makes an operation of it, with progress, that can be
  stopped.
- **Long work on the archive** is done by a worker: the answer is 202 with the number of a job, and `GET
  /archive/work/{job_id}` says how far it is and what came of it.
- **Live**: `GET /stream` with `Accept: text/event-stream` tells of every change, at most once a second.

```
curl -H "Authorization: Bearer $SERENO_TOKEN" 'http://127.0.0.1:8765/api/v1/jobs?q=state:dead%20tenant:r42'
```

What the command line can do and this cannot, and why:

| command | why not here |
|---|---|
| `sereno worker`, `scheduler`, `server`, `run`, `demo`, `init` | they start a process, or write files, where you are |
| `sereno migrate` | the server's login may not change the schema, and shall not; `GET /migrations` says how far it is |
| `sereno migrate --sql`, `--roles` | for the owner of the database; needs no server |
| `sereno schedule import --from` | it reads another database, whose password has no business here |
| `sereno archive query` beyond 10,000 rows | an answer here has bounds; `POST /archive/export` has none |
| `sereno top`, `log list --follow` | `GET /stream`, and `GET /logs` again |
| `sereno version` | `info.version` of the OpenAPI document |
"""


def reference() -> str:
    """The page."""
    routes: dict[str, list[str]] = defaultdict(list)
    for path, operations in asyncio.run(_document())["paths"].items():
        for method, operation in operations.items():
            routes[operation["tags"][0]].append(_line(method.upper(), path, operation))
    parts = [BEGINNING]
    for room, lines in routes.items():
        head = ["| operation | role | tenant | what it does | takes |", "|---|---|---|---|---|"]
        parts.append("\n".join([f"## {room.capitalize()}", "", *head, *lines, ""]))
    return "\n".join(parts)


async def _document() -> Any:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(asgi(Sereno())), base_url="http://localhost") as client:
        return (await client.get("/api/v1/openapi.json")).raise_for_status().json()


def _line(method: str, path: str, operation: dict[str, Any]) -> str:
    role = operation.get("x-role") or "none"
    words = " ".join(operation.get("description", "").split("\n\n")[0].split()).replace("|", "\\|")
    theirs = "•" if operation.get("x-of-tenants") else ""
    return f"| `{method} {path}` | {role} | {theirs} | {words} | {_takes(operation)} |"


def _takes(operation: dict[str, Any]) -> str:
    queries = [f"`{each['name']}`" for each in operation.get("parameters", ()) if each["in"] == "query"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if "$ref" in body:
        queries.append(f"body: {body['$ref'].rpartition('/')[2]}")
    return ", ".join(queries)


if __name__ == "__main__":
    PAGE.write_text(reference())
