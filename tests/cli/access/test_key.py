"""`sereno key new`."""

from sereno.jobs.encryption import key_ring
from tests.cli.conftest import Command


def test_a_new_key_is_printed_as_the_setting_lists_it(sereno: Command) -> None:
    made = [sereno("key", "new", "--id", "2026b") for _ in range(2)]
    assert [each.exit_code for each in made] == [0, 0]
    keys = [each.stdout.strip() for each in made]
    assert keys[0] != keys[1]
    assert [key_ring([key]).ids for key in keys] == [("2026b",)] * 2
    assert "the first encrypts, all decrypt" in made[0].stderr
    assert len(key_ring([sereno("key", "new").stdout.strip()]).ids) == 1


def test_an_invalid_id_is_refused(sereno: Command) -> None:
    refused = sereno("key", "new", "--id", "a:b")
    assert (refused.exit_code, "the id of a key" in refused.stderr) == (3, True)
