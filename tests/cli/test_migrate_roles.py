"""`sereno migrate --roles`: the statements for roles are printed, and invalid arguments refused."""

import pytest

from tests.cli.conftest import Command


def test_printing_roles_needs_no_database(sereno: Command) -> None:
    answer = sereno("migrate", "--roles", "print", SERENO_DATABASE_URL="postgresql://nowhere.invalid/none")
    assert answer.exit_code == 0
    assert "create role sereno_owner nologin;" in answer.stdout
    assert "grant insert (actor,action,subject,detail) on sereno.audit to sereno_worker;" in answer.stdout
    assert "password '" not in answer.stdout


def test_role_names_follow_the_schema_or_the_prefix(sereno: Command) -> None:
    by_schema = sereno("migrate", "--roles", "print", "--schema", "acme").stdout
    assert "grant insert (actor,action,subject,detail) on acme.audit to acme_worker;" in by_schema
    assert "in schema acme_archive" in by_schema
    named = sereno("migrate", "--roles", "print", "--prefix", "shop").stdout
    assert "grant insert (actor,action,subject,detail) on sereno.audit to shop_worker;" in named
    assert "sereno_worker" not in named


def test_invalid_role_arguments_are_refused(sereno: Command, subtests: pytest.Subtests) -> None:
    for arguments, code, words in [
        (["--prefix", "shop"], 2, "add --roles"),
        (["--roles", "print", "--check"], 2, "choose one"),
        (["--roles", "print", "--sql"], 2, "choose one"),
        (["--roles", "drop"], 2, "print"),
        (["--roles", "print", "--prefix", "Shop"], 3, "lower-case letters"),
    ]:
        with subtests.test(arguments=arguments):
            answer = sereno("migrate", *arguments)
            assert answer.exit_code == code
            assert words in answer.output


def test_without_roles_an_upgrade_creates_none(sereno: Command) -> None:
    assert "The roles" not in sereno("migrate").output
