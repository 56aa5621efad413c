"""The channels of an application: unique names and valid policies."""

import pytest

from sereno import ConfigurationError, Sereno
from sereno.channels.contract import Channel


class Pager(Channel):
    name = "pager"


def test_two_channels_cannot_have_the_same_name(app: Sereno) -> None:
    first = app.channels.add(Pager())
    assert app.channels["pager"] is app.channels.add(first)
    with pytest.raises(ConfigurationError, match="two channels named pager"):
        app.channels.add(Pager())


def test_on_unknown_must_be_retry_or_park(app: Sereno) -> None:
    class Strange(Pager):
        on_unknown = "resend"  # type: ignore[assignment]  # wrong on purpose

    with pytest.raises(ConfigurationError, match='pager: on_unknown must be "retry" or "park", not \'resend\''):
        app.channels.add(Strange())
    app.channels.add(Pager())
