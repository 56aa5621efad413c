"""`sereno topic …`: output, effect and audit."""

import json

import psycopg
import pytest

from sereno import Sereno
from sereno.cli.notifications.topic import BOUND
from sereno.notifications.topics import queries
from tests.cli.conftest import Command


def test_the_bound_of_the_command_is_that_of_the_query() -> None:
    assert BOUND == queries.SUBSCRIBERS_BOUND


def test_topics_are_listed_shown_and_changed(
    sereno: Command, app: Sereno, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for key in ("ada", "bob"):
        app.recipients.upsert(key)
    app.recipients.upsert("cyd", tenant="t")
    steps: list[tuple[tuple[str, ...], int, str]] = [
        (("list", "-o", "table"), 0, "No topic matches."),
        (("list", "--fail-empty"), 7, ""),
        (("subscribe", "tender:r42", "ada", "bob"), 0, "Subscribed to tender:r42: 2 new."),
        (("subscribe", "tender:r42", "ada", "cyd"), 1, "there is no recipient 'cyd'"),
        (("subscribe", "tender:r42", "cyd", "--tenant", "t"), 0, "1 new."),
        (("list", "tender:*", "-o", "table"), 0, "tender:r42"),
        (("list", "other:*", "-o", "table"), 0, "No topic matches."),
        (("list", "-n", "1", "-o", "table"), 0, "add --after tender:r42"),
        (("list", "--after", "tender:r42", "-o", "table"), 0, "No topic matches."),
        (("show", "tender:r42", "--tenant", "t"), 0, "cyd"),
        (("show", "other", "-o", "table"), 0, "No recipient is subscribed."),
        (("unsubscribe", "tender:r42", "bob", "nobody"), 0, "Unsubscribed from tender:r42: 1."),
    ]
    for arguments, code, text in steps:
        with subtests.test(arguments=arguments):
            result = sereno("topic", *arguments)
            assert (result.exit_code != 0) == (code != 0), result.output
            assert text in result.output
    lines = json.loads(sereno("topic", "show", "tender:r42", "-o", "json").stdout)["items"]
    assert [line["recipient"] for line in lines] == ["ada"]
    actions = connection.execute("select action, subject from sereno.audit order by id").fetchall()
    assert actions == [("topic.subscribe", "topic tender:r42")] * 2 + [("topic.unsubscribe", "topic tender:r42")]
