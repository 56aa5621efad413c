"""`sereno trace`: the timeline, without control characters."""

import json

from sereno import Sereno
from sereno.cli.monitoring.trace import MOST_AFTER
from tests.cli.conftest import Command
from tests.jobs.job_steps import Connection, add
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


def test_the_jobs_that_a_job_waited_for_are_named(sereno: Command, app: Sereno, connection: Connection) -> None:
    first = add(connection, MOST_AFTER + 1, trace="graph")
    (last,) = add(connection, trace="graph", after=first)
    lanes = {lane["id"]: lane for lane in json.loads(sereno("trace", "graph", "-o", "json").output)["lanes"]}
    assert lanes[str(last)]["after"] == [str(job) for job in first]
    *others, line = sereno("trace", "graph", "-o", "table").output.splitlines()
    assert line.endswith(f"waiting, after {', '.join(map(str, first[:MOST_AFTER]))}, …")
    assert not any(", after " in other for other in others)


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
