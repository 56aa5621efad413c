"""The events that the sources emit and those of the page for operators are the same."""

import ast
import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from sereno.jobs.attempt import Settlement
from tests.code_rules.sources import ROOT, nodes, texts

PAGE = ROOT / "docs" / "operate" / "worker-in-production.md"


def emitted_events() -> set[str]:
    """Return every event name in the sources; a name that is built from an outcome counts as one for each outcome."""
    names: set[str] = set()
    for path, call in nodes():
        if not isinstance(call, ast.Call):
            continue
        if isinstance(call.func, ast.Name) and call.func.id == "emit":
            names |= event_names(call.args[1], path)
        names |= logged_event(call)
    return names


def logged_event(call: ast.Call) -> set[str]:
    """Return the event of a log call that names it: `ctx.log.info(…, extra={"event": "archive.moved"})`."""
    return {
        value.value
        for extra in call.keywords
        if extra.arg == "extra" and isinstance(extra.value, ast.Dict)
        for key, value in zip(extra.value.keys, extra.value.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "event"
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


def event_names(argument: ast.expr, path: Path) -> set[str]:
    match argument:
        case ast.Constant(value=str(name)):
            return {name}
        case ast.JoinedStr():
            # f"job.{outcome}", the only name that is built.
            return {f"job.{outcome}" for outcome in get_args(get_type_hints(Settlement)["outcome"])}
        case _:
            # A parameter: every dotted word in the file is an event.
            return set(re.findall(r'"([a-z]+\.[a-z_]+)"', texts()[path]))


@pytest.mark.slow
def test_every_event_is_documented() -> None:
    page = PAGE.read_text()
    events = emitted_events()
    assert len(events) > 20
    assert sorted(event for event in events if f"`{event}`" not in page) == []


@pytest.mark.slow
def test_every_documented_event_exists() -> None:
    page = PAGE.read_text()
    documented = re.findall(r"^\| `([a-z]+\.[a-z_]+)` \|", page, re.MULTILINE)
    assert sorted(set(documented) - emitted_events() - {"job.log"}) == []
