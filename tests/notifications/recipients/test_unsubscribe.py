"""Tokens of unsubscribe links: only unchanged tokens can be read."""

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno.errors import InvalidArguments
from sereno.notifications.recipients.unsubscribe import LONGEST_TOKEN, Unsubscribe, make_token, read_token

SECRET = "s" * 32
OTHER = "t" * 32
ALPHABET = string.ascii_letters + string.digits + "-_"

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
abouts = st.builds(
    Unsubscribe,
    st.none() | names,
    names,
    names,
    st.integers(1, 2**63 - 1),
    st.none() | names,
    st.none() | names,
)


def made(about: Unsubscribe) -> str:
    token = make_token(SECRET, about)
    assert token is not None
    return token


@pytest.mark.slow
@given(abouts)
def test_a_token_can_be_read(about: Unsubscribe) -> None:
    token = made(about)
    assert read_token(SECRET, token) == about
    assert set(token) <= set(ALPHABET)
    assert len(token) <= LONGEST_TOKEN


@pytest.mark.slow
@given(abouts, st.data())
def test_no_character_can_be_changed(about: Unsubscribe, data: st.DataObject) -> None:
    token = made(about)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from(ALPHABET + "=+/ \n.é").filter(lambda one: one != token[at]))
    with pytest.raises(InvalidArguments, match="not valid"):
        read_token(SECRET, token[:at] + other + token[at + 1 :])


def test_no_byte_and_no_bit_can_be_changed() -> None:
    token = made(Unsubscribe("r42", "user:7", "email", 4711, "news", "letter"))
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    for at in range(len(raw)):
        for bit in range(8):
            forged = bytearray(raw)
            forged[at] ^= 1 << bit
            with pytest.raises(InvalidArguments):
                read_token(SECRET, base64.urlsafe_b64encode(bytes(forged)).decode().rstrip("="))


@pytest.mark.slow
@given(abouts, st.data())
def test_nothing_can_be_cut_off_or_added(about: Unsubscribe, data: st.DataObject) -> None:
    token = made(about)
    short = token[: data.draw(st.integers(0, len(token) - 1))]
    long = token + data.draw(st.text(ALPHABET + "=\n ", min_size=1, max_size=5))
    for wrong in (short, long, f"={token}", f" {token}"):
        with pytest.raises(InvalidArguments):
            read_token(SECRET, wrong)


@pytest.mark.slow
@given(abouts)
def test_another_secret_is_refused(about: Unsubscribe) -> None:
    with pytest.raises(InvalidArguments):
        read_token(OTHER, made(about))


@pytest.mark.slow
@given(st.text(max_size=200) | st.text(ALPHABET, max_size=2 * LONGEST_TOKEN))
def test_invalid_tokens_are_refused_with_a_helpful_message(token: str) -> None:
    with pytest.raises(InvalidArguments, match="open it again from the message"):
        read_token(SECRET, token)


def test_a_token_is_compact_and_bounded() -> None:
    assert len(made(Unsubscribe(None, "user:7", "email", 4711, "news", "letter.weekly"))) < 80
    assert make_token(SECRET, Unsubscribe(None, "k" * 500, "email", 1)) is None
    longest = max(
        (token for size in range(500) if (token := make_token(SECRET, Unsubscribe(None, "k" * size, "email", 1)))),
        key=len,
    )
    assert len(longest) in range(LONGEST_TOKEN - 3, LONGEST_TOKEN + 1)
    assert read_token(SECRET, longest).channel == "email"
