"""Bodies of requests without authentication: read up to a limit for each route."""

from http import HTTPStatus

from starlette.requests import Request

from sereno.server.shared.http_error import HTTPError


async def read_body(request: Request, most: int) -> bytes:
    """Return the body; 413 as soon as it has more bytes than `most`, without waiting for the rest.

    The server holds what was read until the request is complete, and there may be thousands of requests at once.
    """
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > most:
            # The rest of the body would be read as the next request.
            detail = f"a body has at most {most:,} bytes here"
            raise HTTPError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, {"Connection": "close"})
    return bytes(found)
