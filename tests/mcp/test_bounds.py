"""Results of tools are short, and show what they hold."""

import json

from sereno.mcp.bounds import LONGEST_RESULT, result_text


def test_a_small_value_is_kept_whole() -> None:
    value = {"id": 7, "args": {"name": "Zoë", "tags": ["a", None, True, 1.5]}}
    assert json.loads(result_text(value)) == value


def test_large_values_are_cut_and_counted() -> None:
    deep: object = "end"
    for _ in range(100):
        deep = [deep]
    for value, expected in (
        ({"traceback": "x" * 100_000}, "… (96000 more characters)"),
        ({"items": list(range(100_000))}, "… (99800 more)"),
        ({str(number): number for number in range(1000)}, '"…":"800 more"'),
        (deep, "(1 entries, nested too deep)"),
        ([["x" * 5000] * 20] * 20, "more"),
        ([{f"{key}": "y" * 300 for key in range(60)}] * 60, "more"),
        ("x" * 100_000, "more characters"),
        ([[["z" * 40] * 30] * 30] * 30, "more"),
    ):
        text = result_text(value)
        assert len(text) <= LONGEST_RESULT
        assert expected in text, text[:200]
        json.loads(text)


def test_what_a_person_would_not_see_is_escaped() -> None:
    hidden = "pay\u200b \u202eevil\u2066 \U000e0041 \x1b[2J \ud800 \x85 line\nnext"
    shown = json.loads(result_text({hidden: hidden}))
    expected = "pay\\u200b \\u202eevil\\u2066 \\ue0041 \\u001b[2J \\ud800 \\u0085 line\nnext"
    assert shown == {expected: expected}
