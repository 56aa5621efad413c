"""Requests that tests of schedules share."""

from typing import Any

import httpx

JSON = {"Content-Type": "application/json"}
DAILY = {"kind": "daily", "at": "03:00", "tz": "Europe/Riga"}


def body(**more: Any) -> dict[str, Any]:
    """Return the definition of a daily schedule."""
    return {"task": "work", "when": DAILY, **more}


def fill(client: httpx.Client) -> None:
    """Create two schedules of the tenant a, one of b, one without a tenant."""
    for key, tenant in (("menu:1", "a"), ("menu:2", "a"), ("menu:3", "b"), ("close", None)):
        assert client.put(f"/schedules/{key}", json=body(tenant=tenant)).status_code == 200


def keys(answer: httpx.Response) -> list[str]:
    return [each["key"] for each in answer.json()["items"]]
