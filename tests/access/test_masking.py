"""Secrets and addresses are masked, by their name or their pattern; everything else is unchanged."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sereno.access.masking import MASK, is_secret, masked, without_secrets

SECRETS = (
    "password", "passwd", "db_password", "Password1", "api_key", "apiKey", "API-KEY", "X-Api-Key", "secret",
    "client_secret", "accessToken", "token", "refresh_token", "Authorization", "authorisation", "cookie", "Set-Cookie",
    "private_key", "credentials", "card", "card_number", "cardNumber", "cvv", "iban", "pin", "otp", "ssn", "session_id",
)  # fmt: skip
PLAIN = ("account", "path", "discard", "cardinality", "spinning", "author", "keyboard", "note", "opinion", "compass")
# A text, and the part of it that must not be shown.
PATTERNS = [
    ("ann.smith@shop.example", "smith"),
    ("ask ann@shop.example, please", "ann@shop"),
    ("+49 170 1234567", "1234567"),
    ("call +371-2000-1234 now", "2000"),
    ("postgresql://app:hunter2@db/shop", "hunter2"),
    ("postgresql://app:hun/ter2@db/shop", "ter2"),
    ("postgresql://app:hun@ter2@db/shop", "ter2"),
    ("Authorization: Bearer abcdefgh12345678", "abcdefgh"),
    ("https://x.example/?token=abc&user=7", "abc"),
    ("4111 1111 1111 1111", "4111"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "c2ln"),
]
SHOWN = ("2026-11-01", "2026-11-01T03:00:00+02:00", "20261101", "1.5", "order 4711-22", "r-0412", "a@b", "@ann", "1+1")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=20,
)


def test_secrets_are_recognised_by_their_name(subtests: pytest.Subtests) -> None:
    for name in SECRETS:
        with subtests.test(name=name):
            assert is_secret(name)
            for value in ("hunter2", 4711, ["a", "b"], {"inside": "x"}):
                assert masked({name: value}) == {name: MASK}
                assert masked({"deep": [{name: value}]}) == {"deep": [{name: MASK}]}
            # Whether a secret is set is no secret.
            assert masked({name: None}) == {name: None}
            assert masked({name: True}) == {name: True}


def test_other_names_mask_nothing(subtests: pytest.Subtests) -> None:
    for name in PLAIN:
        with subtests.test(name=name):
            assert masked({name: "hunter2"}) == {name: "hunter2"}


def test_secrets_are_recognised_by_their_pattern(subtests: pytest.Subtests) -> None:
    for text, hidden in PATTERNS:
        with subtests.test(text=text, hidden=hidden):
            shown = masked({"text": text})["text"]
            assert hidden not in shown
            assert masked([shown]) == [shown]


def test_dates_numbers_and_ids_are_shown(subtests: pytest.Subtests) -> None:
    for text in SHOWN:
        with subtests.test(text=text):
            assert masked({"text": text}) == {"text": text}


def test_addresses_stay_recognisable_to_their_owner() -> None:
    assert masked({"email": "ann@shop.example"}) == {"email": "an…le"}
    assert masked({"phone": 4917012345678, "mobile": ["+49 170 1234567"]}) == {"phone": "49…78", "mobile": ["+4…67"]}
    assert masked({"mail": "weekly", "email_enabled": True}) == {"mail": "weekly", "email_enabled": True}


def test_values_nested_too_deep_are_masked() -> None:
    value: Any = {"password": "hunter2"}
    for _ in range(500):
        value = [value]
    assert "hunter2" not in json.dumps(masked(value))


@pytest.mark.slow
@pytest.mark.parametrize("examples", [30, pytest.param(10_000, marks=pytest.mark.storm)])
def test_masking_returns_json_of_the_same_kind_for_any_value(examples: int) -> None:
    @settings(max_examples=examples)
    @given(JSON)
    def check(value: Any) -> None:
        once = masked(value)
        json.dumps(once)
        assert type(once) is type(value)

    check()


def test_secrets_after_their_name_in_a_text_are_masked(subtests: pytest.Subtests) -> None:
    for text, shown in [
        ("password: hunter2 and more", f"password: {MASK} and more"),
        ('{"password": "hunter2", "a": 1}', f'{{"password": "{MASK}", "a": 1}}'),
        ("host=db password='two words' user=ana", f"host=db password={MASK} user=ana"),
        (r"host=db password='it\'s two words' user=ana", f"host=db password={MASK} user=ana"),
        ("contraseña=uno", f"contraseña={MASK}"),
        ("senha: dois", f"senha: {MASK}"),
        ("the token expired: again", "the token expired: again"),
    ]:
        with subtests.test(text=text, shown=shown):
            assert without_secrets(text) == shown
