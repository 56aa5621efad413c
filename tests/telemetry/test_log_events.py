"""Logging of sereno's own processes, beside what the application has configured."""

import io
import logging
import sys
from collections.abc import Iterator

import pytest

from sereno.telemetry import log_events
from sereno.telemetry.log_events import JsonFormatter, LineHandler, LogForm, configure


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """The root logger as a new process has it; its handlers and levels are restored."""
    root = logging.getLogger()
    handlers, levels = list(root.handlers), (root.level, log_events.logger.level)
    root.handlers.clear()
    root.setLevel(logging.WARNING)
    monkeypatch.setattr(log_events, "configured", False)
    yield root
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    log_events.logger.setLevel(levels[1])


def test_handlers_of_the_application_stay(root: logging.Logger, subtests: pytest.Subtests) -> None:
    forms: list[tuple[LogForm, str, str, bool]] = [
        ("auto", "", "", True),
        ("json", "", "", True),
        ("auto", "elsewhere", "elsewhere", True),
        # What the application writes to the terminal itself is not written twice.
        ("auto", "elsewhere shown", "elsewhere shown", False),
        ("json", "elsewhere shown", "elsewhere", True),
        ("console", "shown", "", True),
    ]
    for form, before, kept, is_ours_added in forms:
        with subtests.test(form=form, before=before):
            handlers: dict[str, logging.Handler] = {
                "elsewhere": logging.StreamHandler(io.StringIO()),
                "shown": logging.StreamHandler(sys.stderr),
            }
            root.handlers[:] = [handlers[name] for name in before.split()]
            for _ in range(2):
                configure("info", form)
                ours = [handler for handler in root.handlers if isinstance(handler, LineHandler)]
                assert [handler for handler in root.handlers if handler not in ours] == [
                    handlers[name] for name in kept.split()
                ]
                assert len(ours) == is_ours_added
    assert log_events.configured


def test_the_level_of_the_application_stays(root: logging.Logger) -> None:
    root.handlers.clear()
    root.setLevel(logging.INFO)
    configure("info", "auto")
    assert root.level == logging.WARNING
    root.handlers[:] = [logging.StreamHandler(io.StringIO())]
    root.setLevel(logging.INFO)
    configure("info", "auto")
    assert root.level == logging.INFO


def test_lines_are_json_unless_they_are_on_a_terminal(
    root: logging.Logger, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for form, is_terminal, is_json in [("auto", True, False), ("auto", False, True), ("json", True, True)]:
        with subtests.test(form=form, is_terminal=is_terminal):
            monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
            root.handlers.clear()
            configure("info", form)  # type: ignore[arg-type]  # one of the literals
            (handler,) = root.handlers
            assert isinstance(handler.formatter, JsonFormatter) == is_json
