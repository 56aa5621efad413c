"""`sereno trace`: the timeline, without control characters."""

import json

from tests.cli.conftest import Command
from tests.manual_worker import ManualWorker


def test_the_timeline_of_a_trace_is_drawn(sereno: Command, manual: ManualWorker) -> None:
    first, second = manual.enqueue(trace="abc"), manual.enqueue(trace="abc", tenant="t")
    shown = sereno("trace", "abc", "-o", "table")
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("trace abc: ")
    assert shown.output.count("job greet") == 2
    whole = json.loads(sereno("trace", "abc", "-o", "json").output)
    assert [lane["id"] for lane in whole["lanes"]] == [str(first), str(second)]
    mine = json.loads(sereno("trace", "abc", "--tenant", "t", "-o", "json").output)
    assert [lane["id"] for lane in mine["lanes"]] == [str(second)]
    assert "trace abc" in sereno("trace", "--job", str(first), "-o", "table").output


def test_unknown_traces_and_invalid_arguments_are_refused(sereno: Command, manual: ManualWorker) -> None:
    missing = sereno("trace", "unknown")
    assert missing.exit_code != 0
    assert "no job or event has the trace 'unknown'" in missing.output
    assert sereno("trace", "--subject", "x", "-o", "json").exit_code == 0
    for wrong in ((), ("abc", "--job", "1"), ("--job", "-1")):
        assert sereno("trace", *wrong).exit_code == 2


def test_control_characters_of_a_trace_are_not_printed(sereno: Command, manual: ManualWorker) -> None:
    manual.enqueue(trace="a\x1b[2Jb\nc")
    shown = sereno("trace", "a\x1b[2Jb\nc", "-o", "table").output
    assert "\x1b" not in shown
    assert shown.splitlines()[0].startswith("trace a")
