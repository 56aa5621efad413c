"""Style sheets, scripts and images: read once, with a hash in their path, cached by browsers for a year."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
YEAR = 31_536_000


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file, also compressed."""

    kind: str
    content: bytes
    packed: bytes
    hash: str


@cache
def all_files() -> dict[str, StaticFile]:
    """Return all files by name; no other file is served."""
    found = {}
    for each in (files("sereno.server.web") / "static").iterdir():
        kind = KINDS.get(each.name.rpartition(".")[2])
        if kind is not None:
            content = each.read_bytes()
            hashed = hashlib.sha256(content).hexdigest()[:12]
            found[each.name] = StaticFile(kind, content, gzip.compress(content, mtime=0), hashed)
    return found


@cache
def assets_hash() -> str:
    """Return one hash of all files: modules import each other without a hash, so all of them share the path."""
    names = "".join(f"{name} {file.hash}\n" for name, file in sorted(all_files().items()))
    return hashlib.sha256(names.encode()).hexdigest()[:12]


async def _serve(request: Request) -> Response:
    file = all_files().get(request.path_params["name"])
    if file is None:
        return Response("there is no such file", 404, media_type="text/plain")
    packed = "gzip" in request.headers.get("accept-encoding", "")
    headers = {"Cache-Control": f"public, max-age={YEAR}, immutable", "Vary": "Accept-Encoding"}
    if packed:
        headers["Content-Encoding"] = "gzip"
    return Response(file.packed if packed else file.content, media_type=file.kind, headers=headers)


def routes() -> list[Route]:
    """Return `/static/<hash>/<name>`: the current file for any hash."""
    return [Route("/static/{hash}/{name}", _serve, methods=["GET"], name="static")]
