"""The rules of the seed, as they can be seen from outside, whoever was killed and wherever."""

import hashlib
import json

from tenders.app import published
from tenders.tests.conftest import ANA, BEN, Bucket, World

UNKNOWNS = "select key, unknowns from {sereno}.deliveries join {sereno}.recipients on recipients.id = recipient_id"
LEFT = "select rows, dropped_at is not null from {sereno}.archive_batches where source = 'tenders.tenders'"


def publish(world: World) -> str:
    """One that both phones want to hear of; its code."""
    return world.authority.publish(region="Biobío", amount=7_000_000)


def hold_so_far(world: World, code: str) -> None:
    """At any moment, also in the middle of everything."""
    registry = [found for (found,) in world.rows("select code from tenders.registry")]
    tenders, left = world.tenders(), world.rows(LEFT)
    # Who has claimed a code has written its tender, and nobody has written it twice.
    assert registry in ([], [code])
    assert len(tenders) + len(left) == len(registry)
    deliveries = world.kit.deliveries(published)
    assert len({each.recipient for each in deliveries}) == len(deliveries) <= 2
    assert len(world.rows("select from {sereno}.events where type = %s", published.name)) <= 1
    # Without a receipt, nobody says that somebody was told.
    if deliveries and "delivered" not in world.states().values():
        assert not any(notified for *_, notified in tenders.values())
    _nobody_is_told_twice(world, code)


def hold_when_told(world: World, code: str) -> None:
    """The tender is there once, both phones were told, and a receipt says so."""
    hold_so_far(world, code)
    assert world.tenders() == {code: ("Biobío", 7_000_000, "Municipality 1", True)}
    assert world.states() == {"ana": "delivered", "ben": "delivered"}
    assert set(world.pushed()) == {(code, ANA), (code, BEN)}
    world.check_promises()


def hold_when_archived(world: World, bucket: Bucket, code: str) -> None:
    """All of it is in the archive, once, with a checksum that holds; the code is known for ever."""
    hold_so_far(world, code)
    assert world.rows(LEFT) == [(1, True)]
    assert not world.tenders()
    (row,) = bucket.rows("tenders.tenders")
    assert (row["code"], row["amount"], row["notified"]) == (code, 7_000_000, True)
    assert [each["state"] for each in bucket.rows("deliveries")] == ["delivered", "delivered"]
    for kind in ("tenders.tenders", "deliveries"):
        checksums = [hashlib.sha256(body).hexdigest() for body in bucket.bodies(kind)]
        described = [json.loads(body)["sha256"] for body in bucket.bodies(kind, ".json")]
        noted = [sha256 for (sha256,) in world.rows("select sha256 from {sereno}.archive_files where kind = %s", kind)]
        assert checksums == described == noted
        assert len(checksums) == 1
    world.check_promises()


def _nobody_is_told_twice(world: World, code: str) -> None:
    """But where the delivery says that nobody knew what became of the first push."""
    unknowns = dict(world.rows(UNKNOWNS))
    for installation, token in (("ana", ANA), ("ben", BEN)):
        if installation in unknowns:
            assert world.pushed().count((code, token)) <= 1 + unknowns[installation]
