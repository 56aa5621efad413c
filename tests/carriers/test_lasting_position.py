"""What only a leader without followers counts as acknowledged is kept: its successor delivers it again."""

from sereno.worker.carried.lasting_position import LASTS_AFTER, LastingPosition


def test_a_position_lasts_after_a_minute() -> None:
    position = LastingPosition()
    assert position.add(5, 100.0) == 0
    assert position.add(7, 101.0 + LASTS_AFTER / 2) == 0
    assert position.add(9, 100.0 + LASTS_AFTER) == 5
    assert position.add(9, 101.0 + 1.5 * LASTS_AFTER) == 7
    assert position.add(9, 101.0 + 3 * LASTS_AFTER) == 9


def test_a_position_that_a_successor_takes_back_does_not_last() -> None:
    position = LastingPosition()
    position.add(8, 0.0)
    assert position.add(5, 20.0) == 0
    assert position.add(8, LASTS_AFTER) == 5
    assert position.add(8, 20.0 + 2 * LASTS_AFTER) == 8


def test_an_answer_after_a_silence_does_not_last_yet() -> None:
    position = LastingPosition()
    position.add(5, 0.0)
    assert position.add(8, 10 * LASTS_AFTER) == 5
    assert position.add(8, 11 * LASTS_AFTER) == 8


def test_a_stream_that_was_created_again_begins_again() -> None:
    position = LastingPosition()
    position.add(8, 0.0)
    position.add(8, LASTS_AFTER)
    assert position.add(1, LASTS_AFTER + 1) == 1
