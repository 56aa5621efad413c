"""Clients for tests: the server's API, the database, and the commands of sereno."""

import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any

import psycopg
from reminders.app import app
from reminders.demo import RECIPIENTS

from sereno.access.operations import create

# The addresses of a recipient with all channels.
ANA = RECIPIENTS["reminders.ana"]


class ApiClient:
    """Calls the server with the token of a role."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._tokens = {role: app.database.run(create(role, role)).secret for role in ("viewer", "operator")}

    def __call__(self, method: str, path: str, body: object = None, *, role: str = "operator") -> tuple[int, Any]:
        """Return the status and the decoded body."""
        headers = {"Content-Type": "application/json"}
        if role in self._tokens:
            headers["Authorization"] = f"Bearer {self._tokens[role]}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, headers, method=method)  # noqa: S310 - ours
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - ours
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


def sql(statement: str, *values: object) -> list[Any]:
    """Run SQL; `sereno.` is replaced by the schema of the test."""
    text = statement.replace("sereno.", f"{app.settings.schema}.")
    with psycopg.connect(app.url) as connection:
        cursor = connection.execute(text.encode(), values)
        return cursor.fetchall() if cursor.description else []


def sereno(*words: str) -> list[str]:
    return [sys.executable, "-m", "sereno", *words]


def environment() -> dict[str, str]:
    """Return the environment of a process on the same schema."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "SERENO_DATABASE_URL": app.url, "SERENO_SCHEMA": app.settings.schema, "PYTHONPATH": path}
