"""`/inbox.js`, `/job.js`, `/preferences.js`: elements for other pages. Browsers revalidate them: names have no hash."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sereno.server.web.static_files import all_files

NAMES = ("inbox.js", "job.js", "preferences.js")
FRESH_SECONDS = 300


async def _serve(request: Request) -> Response:
    file = all_files()[request.url.path.rpartition("/")[2]]
    # The same script, compressed or not.
    mark = f'W/"{file.hash}"'
    headers = {
        "Cache-Control": f"public, max-age={FRESH_SECONDS}",
        "ETag": mark,
        "Vary": "Accept-Encoding",
        # A script without secrets: any page may load it. What it can read is decided by CORS and tokens.
        "Access-Control-Allow-Origin": "*",
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
    known = [each.strip() for each in request.headers.get("if-none-match", "").split(",")]
    if mark in known or "*" in known:
        return Response(status_code=304, headers=headers)
    packed = "gzip" in request.headers.get("accept-encoding", "")
    if packed:
        headers["Content-Encoding"] = "gzip"
    return Response(file.packed if packed else file.content, media_type=file.kind, headers=headers)


def routes() -> list[Route]:
    """`/inbox.js`, `/job.js`, `/preferences.js`."""
    return [Route(f"/{name}", _serve, methods=["GET"]) for name in NAMES]
