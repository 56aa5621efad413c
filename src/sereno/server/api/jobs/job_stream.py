"""The stream of a job: a client of `text/event-stream` gets its state, progress and chunks as they come.

With an API token, or with a job token, which the application gives to the user who waits for the job.
"""

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Request, Response
from fastapi.responses import StreamingResponse

from sereno.access.identity import Principal
from sereno.access.masking import masked
from sereno.jobs.job_stream import Chunk, JobView, Position, chunks_after
from sereno.jobs.job_token import PREFIX, read_token
from sereno.server.api.jobs.job_watch import JobWatch, WatchedJob
from sereno.server.api.jobs.jobs import JobId
from sereno.server.api.problems import responses
from sereno.server.api.router import ALWAYS, Router
from sereno.server.api.stream import EVENT_STREAM, HEADERS, LONGEST_SECONDS, SILENCE_SECONDS, TRUST_SECONDS
from sereno.server.shared.authenticator import CURRENT_SHARE, tenant_share
from sereno.server.shared.busy import BUSY
from sereno.server.shared.context import ServerContext
from sereno.server.shared.error_masking import sees_all
from sereno.server.shared.http_error import HTTPError, not_found
from sereno.server.shared.tenant_scope import check_theirs

_BEARER = re.compile(r"[Bb]earer +(\S+)")
# The id of a chunk's event: attempt and number.
_EVENT_ID = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
# The share of database reads of all job tokens for jobs without a tenant.
JOB_TOKENS = ("all", "job tokens")


@dataclass(frozen=True)
class JobClient:
    """Who watches which job. `who`: None with a job token, which expires at `until`."""

    job_id: int
    who: Principal | None = None
    until: int | None = None

    @property
    def quota_name(self) -> str:
        return f"job {self.job_id}" if self.who is None else f"user {self.who.actor}"


@dataclass
class JobProgress:
    """A job, for clients that poll. `last_chunk`: the number of the last chunk of this attempt."""

    state: str
    attempt: int
    fraction: float | None
    note: str | None
    last_chunk: int


class StateEvent(msgspec.Struct):
    """A state of the job. Chunks that follow an event with a higher attempt start a new sequence."""

    state: str
    attempt: int


class ProgressEvent(msgspec.Struct):
    """What the running attempt reported last."""

    fraction: float
    note: str | None


class EndEvent(msgspec.Struct, omit_defaults=True):
    """The end of the job; nothing follows. `error`: never with a job token, masked for viewers.

    What it returned is not for every watcher: `GET /jobs/{job_id}/result`, with an API token.
    """

    state: str
    attempt: int
    error: str | None = None


def routes(context: ServerContext) -> Router:
    """`/jobs/{job_id}/stream`."""
    router = Router(context, "jobs")
    watch = JobWatch(context)
    context.endings.append(watch.end)
    find_client = client_of(context)
    # This operation authenticates requests itself.
    extra = {"x-role": "viewer", "x-of-tenants": True, "x-own-authentication": True, "security": [{"token": []}]}
    shown: dict[int | str, dict[str, Any]] = {200: {"content": {EVENT_STREAM: {}}}}

    @router.api_route(
        "/jobs/{job_id}/stream",
        methods=["GET"],
        responses=responses(*ALWAYS) | shown,
        openapi_extra=extra,
        response_model=JobProgress,
    )
    async def stream_job(
        request: Request, client: Annotated[JobClient, Depends(find_client)]
    ) -> Response | JobProgress:
        """State and progress of a job; as `text/event-stream`, at every change, with the chunks that it emits.

        `Last-Event-ID` continues after that chunk. A stream ends with the job or with its token. Above the limit of
        streams the response is 503, with Retry-After.
        """
        view = await watch.view(client.job_id)
        if view is None:
            raise not_found(f"job {client.job_id}")
        if client.who is not None:
            check_theirs(client.who, view.tenant, f"job {client.job_id}")
        if EVENT_STREAM not in request.headers.get("accept", ""):
            return JobProgress(view.state, view.attempt, view.fraction, view.note, view.last)
        tenant = view.tenant if client.who is None else client.who.tenant
        if tenant is not None:
            CURRENT_SHARE.set(tenant_share(tenant))
        watch.check_place(client.quota_name, tenant)

        async def is_still_allowed() -> bool:
            return await _is_still(client, request, find_client)

        stream = JobStream(context, client, tenant, _position(request))
        return StreamingResponse(stream.events(watch, is_still_allowed), media_type=EVENT_STREAM, headers=HEADERS)

    return router


def client_of(context: ServerContext) -> Callable[..., Any]:
    """Return the dependency that authenticates a request for the stream of a job."""

    async def client(request: Request, job_id: JobId) -> JobClient:
        found = _BEARER.fullmatch(request.headers.get("authorization", ""))
        if found is not None and found[1].startswith(PREFIX):
            return _by_token(context, found[1], job_id)
        return JobClient(job_id, await context.authenticator.check(request, "viewer", of_tenants=True))

    return client


def _by_token(context: ServerContext, token: str, job_id: int) -> JobClient:
    secret = context.settings.secret
    reader = None if secret is None else read_token(secret, token, time.time())
    if reader is None:
        detail = "this job token is invalid or has expired: request a new one from the application"
        raise HTTPError(HTTPStatus.UNAUTHORIZED, detail, {"WWW-Authenticate": "Bearer"})
    if reader.job != job_id:
        raise not_found(f"job {job_id}")
    CURRENT_SHARE.set(JOB_TOKENS)
    return JobClient(job_id, until=reader.until)


def _position(request: Request) -> Position:
    """Return the last chunk that the client has; none if it names none."""
    found = _EVENT_ID.fullmatch(request.headers.get("last-event-id", ""))
    return Position() if found is None else Position(int(found[1]), int(found[2]))


class JobStream:
    """One open stream: what its client has got, and the events that follow."""

    def __init__(self, context: ServerContext, client: JobClient, tenant: str | None, position: Position) -> None:
        self._context = context
        self._client = client
        self._tenant = tenant
        self._position = position
        self._state: StateEvent | None = None
        self._progress: ProgressEvent | None = None

    async def events(self, watch: JobWatch, is_still_allowed: Callable[[], Awaitable[bool]]) -> AsyncIterator[bytes]:
        last, began = 0, time.monotonic()
        checked_at = sent_at = began
        client = self._client
        yield b"retry: 2000\n\n"
        # The quota may be used up by now, or the database unavailable: the client then reconnects.
        with suppress(HTTPError, *BUSY), watch.watching(client.job_id, client.quota_name, self._tenant) as job:
            while not job.is_ended and time.monotonic() < began + LONGEST_SECONDS:
                change = await job.next(last, _timeout(client))
                now = time.monotonic()
                # An expired token gets nothing more, not even a notice of a change.
                if _timeout(client) <= 0:
                    return
                if now > checked_at + TRUST_SECONDS:
                    checked_at = now
                    if not await is_still_allowed():
                        return
                if change is not None:
                    (last, view), sent_at = change, now
                    async for event in self._of(view, job):
                        yield event
                    if view is None or view.is_ended:
                        return
                elif now > sent_at + SILENCE_SECONDS:
                    sent_at = now
                    yield b": nothing new\n\n"

    async def _of(self, view: JobView | None, job: WatchedJob) -> AsyncIterator[bytes]:
        """Yield what is new in a view: state, progress, chunks, and the end after all of them."""
        if view is None:
            # Deleted, or a success of a task without history that has emitted nothing.
            yield _event("end", EndEvent("gone", self._position.attempt))
            return
        state = StateEvent(view.state, view.attempt)
        if state != self._state:
            self._state = state
            yield _event("state", state)
        if view.attempt != self._position.attempt:
            self._position, self._progress = Position(view.attempt), None
        if view.fraction is not None:
            progress = ProgressEvent(view.fraction, view.note)
            if progress != self._progress:
                self._progress = progress
                yield _event("progress", progress)
        while self._position.number < view.last:
            # A later attempt may have deleted them.
            if not (page := await self._page(job)):
                return
            for chunk in page:
                self._position = Position(view.attempt, chunk.number)
                yield _chunk_event(view.attempt, chunk)
        if view.is_ended:
            yield _event("end", EndEvent(view.state, view.attempt, self._error(view)))

    async def _page(self, job: WatchedJob) -> list[Chunk]:
        """Return the next chunks: those that the shared query has read, or a page of an own one."""
        recent = job.after(self._position)
        return recent or await self._context.read(chunks_after(self._client.job_id, self._position))

    def _error(self, view: JobView) -> str | None:
        """Return why the job ended; never to a job token."""
        if self._client.who is None or view.error is None:
            return None
        return view.error if sees_all(self._client.who) else masked(view.error)


def _event(name: str, data: msgspec.Struct) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))


def _chunk_event(attempt: int, chunk: Chunk) -> bytes:
    data = b'{"number":%d,"attempt":%d,"value":%s}' % (chunk.number, attempt, chunk.value)
    return b"event: chunk\nid: %d-%d\ndata: %s\n\n" % (attempt, chunk.number, data)


def _timeout(client: JobClient) -> float:
    """Return the seconds until the next authentication, or until the token expires."""
    return TRUST_SECONDS if client.until is None else min(TRUST_SECONDS, max(0.0, client.until - time.time()))


async def _is_still(client: JobClient, request: Request, find_client: Callable[..., Any]) -> bool:
    """Return whether the request would still be authorized."""
    try:
        found: JobClient = await find_client(request, client.job_id)
    except (HTTPError, *BUSY):
        return False
    return found == client
