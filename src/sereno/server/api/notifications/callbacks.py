"""Callbacks of providers. Without a token: each channel verifies the signature of its provider."""

import logging
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import Request

from sereno.channels.contract import Callback
from sereno.error_text import one_line
from sereno.errors import ConfigurationError, InvalidArguments, RejectedCallback, first_line
from sereno.server.api.problems import responses
from sereno.server.api.router import Router
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError, not_found
from sereno.server.shared.log_rate import LogRate
from sereno.server.shared.request_bodies import read_body
from sereno.telemetry.log_events import emit
from sereno.text import check_text

# The path of the API below the public URL.
API = "/api/v1"
# The largest body of a callback, in bytes; providers that batch events send some hundred kilobytes.
LARGEST_CALLBACK = 1024 * 1024
ALSO = (
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.SERVICE_UNAVAILABLE,
)


def routes(context: ServerContext) -> Router:
    """`/callbacks`."""
    router = Router(context, "callbacks")
    rate = LogRate()
    extra: dict[str, Any] = {"x-role": None, "x-of-tenants": True, "security": []}
    common: dict[str, Any] = {"methods": ["POST"], "responses": responses(*ALSO), "openapi_extra": extra}

    @router.api_route("/callbacks/{channel}", **common)
    async def callback(channel: str, request: Request) -> dict[str, bool]:
        """The callback of a provider about its messages, in its own format and with its own signature."""
        return await _received(context, request, rate, channel, "")

    @router.api_route("/callbacks/{channel}/{account}", **common)
    async def callback_of_account(channel: str, account: str, request: Request) -> dict[str, bool]:
        """The same, for messages that were sent with a tenant's own credentials."""
        return await _received(context, request, rate, channel, account)

    return router


async def _received(
    context: ServerContext, request: Request, rate: LogRate, channel: str, account: str
) -> dict[str, bool]:
    if context.settings.read_only:
        raise HTTPError(HTTPStatus.FORBIDDEN, "this server is read-only: SERENO_READ_ONLY is set")
    # An unauthenticated request must not load the code of an installed channel by naming it.
    if channel not in context.app.channels.known:
        raise not_found("such channel")
    try:
        check_text("account", account or None)
        callback = Callback(
            body=await read_body(request, LARGEST_CALLBACK),
            headers={name.lower(): value for name, value in request.headers.items()},
            query=dict(request.query_params),
            url=_signed_url(request, context.settings.public_url),
        )
        await context.app.notifications.callback(channel, callback, account)
    except (RejectedCallback, ConfigurationError, InvalidArguments) as error:
        # The reason is not disclosed to an unauthenticated caller.
        _log_refusal(rate, channel, error)
        raise HTTPError(HTTPStatus.FORBIDDEN, "the signature of the callback is not valid") from None
    except ConnectionError as error:
        _log_refusal(rate, channel, error)
        detail = "the callback cannot be verified now: send it again"
        raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": "60"}) from None
    return {"received": True}


def _log_refusal(rate: LogRate, channel: str, error: Exception) -> None:
    """Log why a callback was refused, at a rate: a wrong secret of a webhook would never be noticed."""
    left_out = rate.count(channel)
    if left_out is not None:
        more = f" ({left_out} more since the last line)" if left_out else ""
        reason = one_line(first_line(error))
        message = f"a callback of the channel {channel} was refused: {reason}{more}"
        emit(logging.WARNING, "callback.refused", message, channel=channel)


def _signed_url(request: Request, public_url: str | None) -> str:
    """Return the URL that the provider called: a proxy may have changed the host, the scheme and the path prefix."""
    if public_url is None:
        return str(request.url)
    raw: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    # After the last match: neither a channel nor an account contains a slash.
    tail = raw.decode("latin-1").rpartition("/callbacks/")[2]
    query = request.scope["query_string"].decode("latin-1")
    return f"{public_url}{API}/callbacks/{tail}{f'?{query}' if query else ''}"
