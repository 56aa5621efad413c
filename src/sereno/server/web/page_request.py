"""One request of a page: the user, the query, and their language, time zone and theme."""

import functools
import gzip
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import unquote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from sereno.access.identity import Principal, Role
from sereno.database.statement import Operation
from sereno.server.shared.cache import FRESH_SECONDS, Cache, Cached
from sereno.server.shared.context import READ_TIMEOUT, ServerContext
from sereno.server.shared.error_masking import hidden_in, sees_all
from sereno.server.web import times
from sereno.server.web.messages import LANGUAGES, NAMES, choose, say
from sereno.server.web.middle import middle
from sereno.server.web.numbers import SEPARATORS, figure, thousands
from sereno.server.web.static_files import assets_hash
from sereno.version import __version__
from sereno.zones import names

T = TypeVar("T")

# Only our own scripts, styles and images; no framing by other sites, no forms to other sites.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
THEMES = ("light", "dark")
# Bytes from which on a page is compressed, and the gzip level: lists shrink to a tenth, and a higher level is slower.
WORTH_PACKING, PACKED_HOW = 2000, 4
# A key of the ASGI scope: the name of the shard whose pages are requested.
SHARD = "sereno.shard"
# Path, name, key after `g`, and whether users of one tenant see it.
Section = tuple[str, str, str, bool]
SECTIONS: Sequence[Section] = (
    ("", "Now", "n", False),
    ("schedules", "Schedules", "s", True),
    ("jobs", "Jobs", "j", True),
    ("notifications", "Notifications", "d", True),
    ("traces", "Traces", "r", True),
    ("tenants", "Tenants", "t", True),
    ("queues", "Queues", "q", False),
    ("errors", "Errors", "e", True),
    ("archive", "Archive", "a", False),
    ("system", "System", "y", False),
)

# Of a server that shows several databases, above their own pages.
SHARD_SECTIONS: Sequence[Section] = (("", "Shards", "n", True),)

# Pages that belong to a section of another name.
SECTION_OF = (
    {
        "schedule": "schedules",
        "operations": "jobs",
        "operation": "jobs",
        "trace": "traces",
        "tenant": "tenants",
        "error": "errors",
    }
    | dict.fromkeys(("logs", "alerts", "audit", "procedures", "tokens", "settings"), "system")
    | dict.fromkeys(
        (
            "deliveries",
            "event",
            "events",
            "recipients",
            "recipient",
            "templates",
            "template",
            "channels",
            "preferences",
        ),
        "notifications",
    )
)


@functools.cache
def environment() -> Environment:
    """Return the Jinja environment: everything is escaped, and an undefined name is an error."""
    made = Environment(
        loader=PackageLoader("sereno.server.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        as_json=lambda value: json.dumps(value, default=str, ensure_ascii=False),
        figure=figure,
        length=times.length,
        middle=middle,
        old=times.old,
    )
    made.globals.update(assets=assets_hash(), languages=NAMES, version=__version__)
    return made


def _hidden(operation: Callable[[], Operation[T]]) -> Operation[T]:
    return hidden_in(operation())


class PageRequest:
    """A request of a page, with what its handler needs to load data and render it."""

    def __init__(
        self,
        context: ServerContext,
        cache: Cache,
        templates: Environment,
        request: Request,
        sections: Sequence[Section] = SECTIONS,
    ) -> None:
        self.context = context
        self.sections = sections
        self.request = request
        self.query = request.query_params
        self.now = datetime.now(UTC)
        self.language = choose(request.cookies.get("sereno_lang"), request.headers.get("accept-language", ""))
        thousands.set(SEPARATORS[self.language])
        # The script encodes the zone as a URL component, with %2F for the slash.
        chosen = unquote(request.cookies.get("sereno_zone", ""))
        self.zone_name = chosen if chosen in names() else "UTC"
        self.zone = times.zone_of(self.zone_name)
        self._cache = cache
        self._templates = templates

    @property
    def who(self) -> Principal:
        """The authenticated user."""
        found = self.request.state.principal
        assert isinstance(found, Principal)
        return found

    @property
    def tenant(self) -> str | None:
        """The tenant whose data is shown: the user's own, or the one in the query."""
        return self.who.tenant or self.query.get("tenant") or None

    @property
    def base(self) -> str:
        """The relative path to the root of the pages: every link is relative, so the server can be mounted anywhere."""
        inside = self.request.url.path.removeprefix(self.request.scope.get("root_path", ""))
        return "../" * (inside.count("/") - 1) or "./"

    @property
    def _path(self) -> str:
        return self.request.url.path.removeprefix(self.request.scope.get("root_path", "")).strip("/")

    def may(self, role: Role) -> bool:
        """Return whether to offer an action; the API checks again."""
        return self.who.may(role) and not self.context.settings.read_only

    @property
    def standby_text(self) -> str | None:
        """Where the page was read, if there is a standby."""
        standby = self.context.standby
        if standby is None:
            return None
        behind = times.length(standby.status.lag)
        if not standby.may_use():
            return self.say("Read from the primary, after a change")
        if standby.status.source == "away":
            return self.say("Read from the primary: the standby is away")
        if standby.status.source == "behind":
            return self.say("Read from the primary: the standby is %(time)s behind", time=behind)
        return self.say("Read from a standby, %(time)s behind", time=behind)

    def say(self, sentence: str, /, **values: object) -> str:
        return say(self.language, sentence, **values)

    def link(self, path: str | None = None, /, **changes: object) -> str:
        """Return a link to this page, or another, with its query; None removes a parameter."""
        query = {} if path is not None else dict(self.query)
        query.update({name: str(value) for name, value in changes.items() if value is not None})
        for name in (name for name, value in changes.items() if value is None):
            query.pop(name, None)
        inside = self.request.url.path.removeprefix(self.request.scope.get("root_path", "")).lstrip("/")
        start = f"{self.base}{inside if path is None else path}"
        return f"{start}?{urlencode(query)}" if query else start

    async def load(
        self,
        key: Hashable,
        operation: Callable[[], Operation[T]],
        *,
        fresh: float = FRESH_SECONDS,
        timeout: float | None = None,
        seconds: float = READ_TIMEOUT,
        keep: bool = True,
    ) -> Cached[T]:
        """Run a query through the cache, once for all viewers; `key` names all that the operation depends on.

        After a change by this user the cache is bypassed, so that they see its effect.
        """
        if self.request.headers.get("x-sereno-live") == "changed" and timeout is None:
            fresh = 0.0
        if not sees_all(self.who):
            # Masked results are cached apart from unmasked ones.
            key, operation = ("hidden", key), functools.partial(_hidden, operation)
        return await self._cache.get(key, operation, fresh=fresh, timeout=timeout, seconds=seconds, keep=keep)

    def render(self, template: str, /, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a template in the user's language; for a live update without the frame."""
        # Later than all that was read: a job that was created meanwhile is not shown as one of the future.
        self.now = datetime.now(UTC)
        is_live = self.request.headers.get("x-sereno-live") is not None
        names: Mapping[str, Any] = {
            "_": self.say,
            "base": self.base,
            "clock": lambda at, form="%H:%M": times.clock(at, self.zone, form),
            "frame": "bare.html" if is_live else "frame.html",
            "here": SECTION_OF.get(self._path, self._path),
            "language": self.language,
            "thousands": SEPARATORS[self.language],
            "link": self.link,
            "page": self,
            "may": self.may,
            "now": self.now,
            "query": self.query,
            "shard": self.request.scope.get(SHARD),
            "sections": [section for section in self.sections if section[3] or self._sees_all],
            "theme": self._chosen("sereno_theme", THEMES),
            "when": lambda at: times.when(at, self.now, self.zone, self.say),
        }
        drawn = self._templates.get_template(template).render({**names, **values}).encode()
        headers = {"Content-Security-Policy": POLICY, "Content-Language": self.language, "Vary": "Accept-Encoding"}
        if len(drawn) > WORTH_PACKING and "gzip" in self.request.headers.get("accept-encoding", ""):
            drawn = gzip.compress(drawn, PACKED_HOW, mtime=0)
            headers["Content-Encoding"] = "gzip"
        return HTMLResponse(drawn, status, headers=headers)

    @property
    def _sees_all(self) -> bool:
        found = getattr(self.request.state, "principal", None)
        return found is not None and found.tenant is None

    def _chosen(self, cookie: str, known: tuple[str, ...]) -> str | None:
        wanted = self.request.cookies.get(cookie)
        return wanted if wanted in known else None


__all__ = ["LANGUAGES", "PageRequest", "environment"]
