"""The dashboard in a Django project, for staff users.

In `asgi.py`:

    application = with_dashboard(get_asgi_application(), "/sereno")
"""

from collections.abc import Mapping
from http import HTTPMethod, HTTPStatus
from importlib import import_module
from typing import Any
from urllib.parse import quote

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.conf import settings
from django.contrib.auth import REDIRECT_FIELD_NAME, get_user
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, close_old_connections
from django.http import HttpRequest
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, reverse
from starlette.requests import HTTPConnection

from sereno.access.identity import Principal, Role, check_role
from sereno.contrib.asgi import Asgi, MountedServer, Receive, Scope, Send, lifespan, redirect
from sereno.errors import DatabaseUnavailable
from sereno.server import asgi


def with_dashboard(django: Asgi, path: str = "/sereno", *, staff: Role = "viewer", sign_in: str | None = None) -> Asgi:
    """Return the Django application with the dashboard and the API of sereno under the path.

    Superusers get the role admin, other staff users the role `staff`; all others are refused. `sign_in`: the sign-in
    page that browsers are redirected to; by default that of the admin site, or LOGIN_URL.
    """
    from sereno.contrib.django.entry import app  # noqa: PLC0415 - pages that enqueue need all tasks to be imported

    server = asgi(app, authenticate=StaffAuthenticator(check_role(staff)))
    return DashboardMount(django, MountedServer(server, path), sign_in, lifespan(app, server=server))


class StaffAuthenticator:
    """Identifies the user of a request by Django's session."""

    def __init__(self, role: Role) -> None:
        self._role = role

    async def __call__(self, request: HTTPConnection) -> Principal | None:
        async with ThreadSensitiveContext():
            return await sync_to_async(self._of_session)(request.cookies)

    def _of_session(self, cookies: Mapping[str, str]) -> Principal | None:
        key = cookies.get(settings.SESSION_COOKIE_NAME)
        if not key:
            return None
        close_old_connections()
        try:
            request = HttpRequest()
            request.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
            user = get_user(request)
            if not (user.is_authenticated and user.is_active and user.is_staff):
                return None
            return Principal(user.get_username()[:200], "admin" if user.is_superuser else self._role)
        except DatabaseError as error:
            raise DatabaseUnavailable("the Django session could not be read from its database") from error
        finally:
            close_old_connections()


class DashboardMount:
    """Routes requests under the mount path to the dashboard, and all others to Django."""

    def __init__(self, django: Asgi, mounted: MountedServer, sign_in: str | None, life: Any) -> None:
        for wanted in ("django.contrib.sessions", "django.contrib.auth"):
            if wanted not in settings.INSTALLED_APPS:
                raise ImproperlyConfigured(f"the dashboard needs {wanted} to identify users: add it to INSTALLED_APPS")
        self._django = django
        self._mounted = mounted
        self._sign_in = sign_in
        self._life = life

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http" and self._mounted.covers(scope):
            await self._mounted(scope, receive, self._redirecting_to_sign_in(scope, send))
        else:
            await self._django(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        """Handle the lifespan protocol, which Django does not support."""
        await receive()
        async with self._life(None):
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def _redirecting_to_sign_in(self, scope: Scope, send: Send) -> Send:
        """Return a `send` that turns 401 into a redirect to the sign-in page for browsers; API clients get the 401."""
        if scope["method"] != HTTPMethod.GET or b"text/html" not in dict(scope["headers"]).get(b"accept", b""):
            return send
        is_redirected = False

        async def redirecting(message: Scope) -> None:
            nonlocal is_redirected
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.UNAUTHORIZED:
                is_redirected = True
                await redirect(send, self._sign_in_page(scope))
            elif not is_redirected:
                await send(message)

        return redirecting

    def _sign_in_page(self, scope: Scope) -> str:
        try:
            page = self._sign_in or reverse("admin:login")
        except NoReverseMatch:
            page = resolve_url(settings.LOGIN_URL)
        target = quote(scope["path"], safe="/")
        if scope.get("query_string"):
            target += f"?{scope['query_string'].decode('latin-1')}"
        return f"{page}?{REDIRECT_FIELD_NAME}={quote(target, safe='/')}"
