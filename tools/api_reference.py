"""Write docs/reference/api.md: every operation of the API, from its OpenAPI document.

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

INTRODUCTION = """# The API

The functions of the command line over HTTP: `sereno server` serves them under `/api/v1`, with an OpenAPI 3.1 document
at `/api/v1/openapi.json`. This page is generated from that document by `make reference`.

- **Authentication**: `Authorization: Bearer srn_…` ([tokens](../operate/security.md#tokens)). The tables list the role
  that each operation requires. A dot means that a token of one tenant may use it too; it then reads and changes only
  that tenant's data.
- **Errors** are problem documents (RFC 9457): `status`, `title`, and a `detail` with the cause and a remedy. 401
  without a token, 403 without the required role, 404 for an object that does not exist or belongs to another tenant,
  409 for an operation that is not possible now, 422 for invalid input.
- **Lists** are paged: `items`, and `next`, which is passed as `before` to get the next page; or `page` and `page_size`,
  for numbered pages.
- **Search**: `q` takes the [search grammar](search.md) in every list that supports it.
- **Idempotency**: a POST with an `Idempotency-Key` is executed once within a day; a repetition returns the first
  response.
- **Bulk**: `dry_run` returns what would be changed; `in_background` creates an operation with progress that can be
  stopped.
- **Long archive operations** run in a worker: the response is 202 with the id of a job, and `GET
  /archive/work/{job_id}` returns its progress and its result.
- **Several databases**: a server with `--shard` has `GET /shards`, and the operations below, without changes, under
  `/shards/NAME/api/v1` ([scale](../operate/scale.md#one-dashboard-over-several-shards)).
- **Live updates**: `GET /stream` with `Accept: text/event-stream` sends an event for every change, at most once a
  second, and `alive` after three seconds without one.

```
curl -H "Authorization: Bearer $SERENO_TOKEN" 'http://127.0.0.1:8765/api/v1/jobs?q=state:dead%20tenant:r42'
```

Commands without an operation in the API:

| command | reason or alternative |
|---|---|
| `sereno worker`, `scheduler`, `server`, `run`, `demo`, `init` | they start a process or write files on your machine |
| `sereno migrate` | the server's login has no privilege to change the schema; `GET /migrations` returns its version |
| `sereno migrate --sql`, `--roles` | for the owner of the database; needs no server |
| `sereno schedule import --from` | it reads another database, whose password should not be sent to the server |
| `sereno archive query` beyond 10,000 rows | responses are bounded; `POST /archive/export` is not |
| `sereno top`, `log list --follow` | follow `GET /stream`, and request `GET /logs` again |
| `sereno version` | `info.version` of the OpenAPI document |
"""


def reference() -> str:
    """Return the page."""
    routes: dict[str, list[str]] = defaultdict(list)
    for path, operations in asyncio.run(_document())["paths"].items():
        for method, operation in operations.items():
            routes[operation["tags"][0]].append(_line(method.upper(), path, operation))
    parts = [INTRODUCTION]
    for tag, lines in routes.items():
        head = ["| operation | role | tenant | description | input |", "|---|---|---|---|---|"]
        parts.append("\n".join([f"## {tag.capitalize()}", "", *head, *lines, ""]))
    return "\n".join(parts)


async def _document() -> Any:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(asgi(Sereno())), base_url="http://localhost") as client:
        return (await client.get("/api/v1/openapi.json")).raise_for_status().json()


def _line(method: str, path: str, operation: dict[str, Any]) -> str:
    role = operation.get("x-role") or "none"
    description = " ".join(operation.get("description", "").split("\n\n")[0].split()).replace("|", "\\|")
    of_tenants = "•" if operation.get("x-of-tenants") else ""
    return f"| `{method} {path}` | {role} | {of_tenants} | {description} | {_input(operation)} |"


def _input(operation: dict[str, Any]) -> str:
    inputs = [f"`{each['name']}`" for each in operation.get("parameters", ()) if each["in"] == "query"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if "$ref" in body:
        inputs.append(f"body: {body['$ref'].rpartition('/')[2]}")
    return ", ".join(inputs)


if __name__ == "__main__":
    PAGE.write_text(reference())
