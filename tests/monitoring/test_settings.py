"""Settings for display: no password of an address is shown, in neither form of addresses."""

import pytest

from sereno.monitoring.settings import masked


def test_no_password_of_an_address_is_shown(subtests: pytest.Subtests) -> None:
    for address, shown in (
        ("postgresql://me:hun,ter2@a:1,b:2/shop", "postgresql://me:********@a:1,b:2/shop"),
        ("postgresql://me@a,b/shop?password=hunter2", "postgresql://me@a,b/shop?password=********"),
        ("host=a,b password=hun,ter2 dbname=shop", "host=a,b password=******** dbname=shop"),
        (r"host=a password='it\'s hunter2' user=x", "user=x password=******** host=a"),
        (r"host=a password=hun\'ter2&x user=x", "user=x password=******** host=a"),
        ("host=a password='not closed", "********"),
    ):
        for name in ("database_url", "read_url", "procedure_url"):
            with subtests.test(name=name, address=address):
                found = masked(name, address)
                assert sorted(found.split()) == sorted(shown.split())
        with subtests.test(address=address):
            assert masked("procedure_targets", {"erp": address}) == {"erp": masked("database_url", address)}
