"""Any exception becomes text that can be stored, however its class behaves."""

import json
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno.error_text import (
    MESSAGE_LIMIT,
    TRACEBACK_LIMIT,
    ErrorText,
    class_name,
    describe,
    frames,
    own_frame,
    storable,
)
from tests.hostile_errors import HOSTILE, Nameless, chain, syntax


def raised(error: BaseException) -> BaseException:
    try:
        raise error  # noqa: TRY301 - with a traceback
    except BaseException as caught:  # noqa: BLE001 - any
        return caught


@pytest.mark.slow
def test_any_error_can_be_described_and_stored(subtests: pytest.Subtests) -> None:
    for name in HOSTILE:
        with subtests.test(name=name):
            found = describe(raised(HOSTILE[name]()))
            for text in found:
                assert type(text) is str
                assert "\x00" not in text
                text.encode()
            assert found.kind
            assert "test_error_text.py" in found.traceback
            assert found.frame == "test_error_text.py:raised"


def test_a_class_that_hides_its_name_is_named() -> None:
    assert describe(Nameless("x"))[:2] == ("Nameless", "x")
    assert class_name(7) == "int"


def test_an_error_that_python_cannot_format_still_has_a_traceback() -> None:
    found = describe(raised(syntax()))
    assert found.traceback.splitlines()[0] == "Traceback (most recent call last):"
    assert found.traceback.splitlines()[-1].startswith("SyntaxError: bad template")


def test_a_long_chain_is_reduced_to_its_last_error() -> None:
    assert "direct cause" not in describe(raised(chain())).traceback


def test_a_traceback_includes_the_cause() -> None:
    error = ValueError("second")
    error.__cause__ = KeyError("first")
    found = describe(raised(error))
    assert "KeyError: 'first'" in found.traceback
    assert "direct cause" in found.traceback


def test_a_long_message_keeps_its_start_and_a_long_traceback_its_end() -> None:
    found = describe(raised(ValueError("m" * 100_000 + "end")))
    assert found.message == "m" * MESSAGE_LIMIT
    assert len(found.traceback) == TRACEBACK_LIMIT
    assert found.traceback.endswith("end\n")


def test_an_error_that_was_never_raised_has_no_traceback() -> None:
    assert describe(ValueError("x")) == ErrorText("ValueError", "x")
    assert str(describe(ValueError("x"))) == "ValueError('x')"


@given(st.text())
def test_any_text_is_storable(text: str) -> None:
    assert "\x00" not in storable(text)
    assert len(storable(text)) <= MESSAGE_LIMIT


def test_the_frame_is_the_last_one_of_the_application() -> None:
    def own() -> None:
        json.loads("{")

    with pytest.raises(ValueError, match="Expecting") as caught:
        own()
    assert [file.rpartition("/")[2] for file, _ in frames(caught.value)][-1] == "decoder.py"
    assert own_frame(frames(caught.value)) == "test_error_text.py:own"
    assert "decoder.py" in "".join(traceback.format_exception(caught.value))


def test_frames_of_libraries_and_generated_code_are_skipped(subtests: pytest.Subtests) -> None:
    for file in [
        "<string>",
        "<frozen importlib._bootstrap>",
        "/x/lib/python3.11/site-packages/httpx/_client.py",
        json.__file__,
    ]:
        with subtests.test(file=file):
            assert own_frame([("/srv/shop/jobs.py", "charge"), (file, "send")]) == "jobs.py:charge"
            assert own_frame([(file, "send")]) == ""
            assert own_frame([("C:\\shop\\jobs.py", "charge")]) == "jobs.py:charge"
