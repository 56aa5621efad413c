"""A pickle is a program. Whatever a job state contains, nothing is imported or called, and memory is not exhausted."""

import codecs
import os
import pickle
import subprocess
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from apscheduler.triggers.cron import CronTrigger
from hypothesis import given
from hypothesis import strategies as st

from sereno.schedules.importers import read
from tests.schedules.importers import old_states
from tests.schedules.importers.test_apscheduler import read_bytes, read_state, state_of

# Seconds of processor time, more than any of these tests takes; an exploding pickle takes for ever.
SECONDS = 5.0
MEMORY = 64 * 1024 * 1024


class Calls:
    """An object that is pickled as a call."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """A file that must not exist afterwards, and limits that must hold."""
    # Python loads the codec for a pickle's text on first use; no name in a pickle causes that import.
    codecs.lookup("raw_unicode_escape")
    before, started = set(sys.modules), time.process_time()
    tracemalloc.start()
    try:
        yield tmp_path / "mark"
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    assert list(tmp_path.iterdir()) == []
    assert set(sys.modules) == before
    assert time.process_time() - started < SECONDS


def calls(mark: Path) -> dict[str, Any]:
    touch = f"touch {mark}"
    code = f"open({str(mark)!r}, 'w')"
    return {
        "os.system": Calls(os.system, touch),
        "subprocess": Calls(subprocess.Popen, ["touch", str(mark)]),
        "eval": Calls(eval, code),
        "exec": Calls(exec, code),
        "open": Calls(open, str(mark), "w"),
        "import": Calls(__import__, "antigravity"),
        "getattr": Calls(getattr, os, "system"),
        "getattr of a zone": Calls(getattr, ZoneInfo, "from_file"),
        "pickle in a pickle": Calls(pickle.loads, pickle.dumps(Calls(os.system, touch))),
        "a thousand million": Calls(deque, range(10**9)),
        "bytes": Calls(bytes, 10**12),
    }


@pytest.mark.slow
def test_a_call_is_not_made(mark: Path, subtests: pytest.Subtests) -> None:
    for name in calls(Path()):
        for place in ["whole", "trigger", "argument", "key of a state"]:
            with subtests.test(name=name, place=place):
                if name == "getattr":
                    # A module cannot be pickled: written by hand, as an attacker would.
                    raw = b"cbuiltins\ngetattr\n(cos\nsystem\nV__call__\ntR."
                else:
                    call = calls(mark)[name]
                    state = {
                        "whole": call,
                        "trigger": state_of(call),
                        "argument": state_of(None, kwargs={"to": [call]}),
                        "key of a state": state_of(None, func=call),
                    }[place]
                    raw = pickle.dumps(state)
                found = read_bytes(raw)
                assert found.schedule is None
                assert "its job state contains" in str(found.problem)
                assert "which is not supported" in str(found.problem)
                assert not mark.exists()


HANDWRITTEN = [
    b"cos\nsystem\n(S'touch mark'\ntR.",
    b"(S'touch mark'\nios\nsystem\n.",
    b"(cos\nsystem\nS'touch mark'\no.",
    b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0atouch mark\x85R.",
    b"\x80\x04\x8c\x0aantigravity\x8c\x01x\x93.",
    b"\x80\x04\x8c\x15apscheduler.triggers.x\x8c\x01y\x93.",
    b"cdatetime\ndatetime.__class__.__subclasses__\n(tR.",
    b"czoneinfo\nZoneInfo.from_file\n(S'/etc/passwd'\ntR.",
    b"c__builtin__\ngetattr\n(czoneinfo\nZoneInfo\nV_unpickle\ntR(V../../../etc/passwd\nI1\ntR.",
    b"ccopyreg\n_reconstructor\n(cos\nsystem\nc__builtin__\nobject\nNtR.",
    b"ccopyreg\n_reconstructor\n(VNot a name\nc__builtin__\nobject\nNtR.",
    b"c_codecs\nencode\n(Vx\nVrot13\ntR.",
    b"\x82\x01.",
    b"Psomething\n.",
    b"V1\nQ.",
    b"(lp0\n(VNot a call\ntR.",
    b"]\x94]b.",
    b"}\x94](K\x01K\x02u.",
    b"\x96\x08\x00\x00\x00\x00\x00\x00\x00deadbeef.",
    b"\x97.",
    b"Nr\xff\xff\xff\xff.",
    b"\x94.",
    b"h\x07.",
    b"t.",
    b"\x87.",
    b"0.",
    b"2.",
    b".",
    b"",
    b"N",
    b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fx.",
    b"\x8b\xff\xff\xff\x7fx.",
    b"I" + b"9" * 100_000 + b"\n.",
    b"\x80\xffN.",
    bytes(range(256)),
]


def test_a_handwritten_pickle_does_nothing(mark: Path, subtests: pytest.Subtests) -> None:
    for raw in HANDWRITTEN:
        with subtests.test(raw=raw[:40]):
            assert read_bytes(raw).schedule is None


TRIGGER = CronTrigger(hour=9, timezone=UTC)


def test_a_small_pickle_of_an_endless_value_is_refused(mark: Path) -> None:
    doubled: Any = ["ha"]
    for _ in range(60):
        doubled = [doubled, doubled]
    found = read_state(state_of(TRIGGER, kwargs={"to": doubled}))
    assert found.schedule is None
    assert "more than 10,000 values" in str(found.problem)


def test_a_list_that_holds_itself_is_refused(mark: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    found = read_state(state_of(TRIGGER, kwargs={"to": endless}))
    assert found.schedule is None
    assert "nested more than 32 levels deep" in str(found.problem)


@pytest.mark.slow
def test_a_deep_pickle_is_refused(mark: Path) -> None:
    found = read_bytes(b"]" * 20_000 + b"a" * 19_999 + b".")
    assert found.schedule is None
    wrapped = b"cpytz_deprecation_shim._impl\nwrap_zone\n" * 5000 + b"N" + b"\x85R" * 5000 + b"."
    assert read_bytes(wrapped).schedule is None


@pytest.mark.slow
def test_a_zone_wrapped_in_ten_thousand_zones_is_refused(mark: Path) -> None:
    zone = b"cpytz_deprecation_shim._impl\nwrap_zone\n" * 4000 + b"cpytz\n_UTC\n)R" + b"\x85R" * 4000
    moment = b"cdatetime\ndatetime\n(C\x0a" + bytes([8, 42, 1, 1, 0, 0, 0, 0, 0, 0]) + zone + b"tR"
    state = pickle.dumps(state_of(TRIGGER, next_run_time="PLACE"), 2)
    found = read_bytes(state.replace(b"X\x05\x00\x00\x00PLACE", moment))
    assert found.schedule is None
    assert "RecursionError" in str(found.problem)


def test_a_large_pickle_is_not_sent_by_the_server(connection: psycopg.Connection, mark: Path) -> None:
    connection.execute(
        "create table apscheduler_jobs (id varchar(191) primary key, next_run_time double precision, job_state bytea)"
    )
    connection.execute(
        "insert into apscheduler_jobs "
        "values ('large', 'NaN', convert_to(repeat('x', 300000), 'UTF8')), ('null', 1, null)"
    )
    large, null = read("apscheduler", connection)
    assert "its job state has 300,000 bytes; more than 262,144 are not read" in str(large.problem)
    assert null.schedule is None
    assert "262,144 are not read" in str(read_bytes(b"N" * 300_000).problem)


REAL = [old_states.CRON_3_6, old_states.INTERVAL_3_6, old_states.DATE_3_10, old_states.LOCAL_3_10]


@given(st.sampled_from(REAL), st.integers(0, 2000))
def test_a_pickle_that_was_cut_off_is_refused(raw: bytes, length: int) -> None:
    cut = raw[: min(length, len(raw) - 1)]
    assert read_bytes(cut).schedule is None


@pytest.mark.slow
@given(st.sampled_from(REAL), st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_pickle_with_other_bytes_is_read_or_refused(raw: bytes, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(raw)
    for place, value in changes:
        changed[place % len(changed)] = value
    found = read_bytes(bytes(changed))
    assert (found.schedule is None) == (found.problem is not None)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    found = read_bytes(raw)
    assert found.schedule is None
    assert found.problem


def test_the_pickle_module_would_execute_it(tmp_path: Path) -> None:
    """Shows why these tests exist: the same bytes do harm with pickle.loads."""
    mark = tmp_path / "mark"
    pickle.loads(pickle.dumps(calls(mark)["os.system"]))  # noqa: S301 - shows the danger
    assert mark.exists()
