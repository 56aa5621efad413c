"""The channels of an application: each name is one, and says what it does in words that are known."""

import pytest

from sereno import ConfigurationError, Sereno
from sereno.channels.contract import Channel


class Pager(Channel):
    name = "pager"


def test_a_name_is_one_channel(app: Sereno) -> None:
    first = app.channels.add(Pager())
    assert app.channels["pager"] is app.channels.add(first)
    with pytest.raises(ConfigurationError, match="two channels named pager"):
        app.channels.add(Pager())


def test_what_becomes_of_an_unknown_outcome_is_one_of_two(app: Sereno) -> None:
    class Strange(Pager):
        on_unknown = "resend"  # type: ignore[assignment]  # what a reader of types would not write

    with pytest.raises(ConfigurationError, match='pager: on_unknown must be "retry" or "park", not \'resend\''):
        app.channels.add(Strange())
    app.channels.add(Pager())
