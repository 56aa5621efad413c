"""The rules of the original design as observable from outside; they hold after any kill."""

import hashlib
import json

from tenders.app import published
from tenders.tests.conftest import ANA, BEN, Bucket, World

UNKNOWNS = "select key, unknowns from {sereno}.deliveries join {sereno}.recipients on recipients.id = recipient_id"
ARCHIVED = "select rows, dropped_at is not null from {sereno}.archive_batches where source = 'tenders.tenders'"


def publish(world: World) -> str:
    """Publish a tender that matches both phones; return its code."""
    return world.authority.publish(region="Biobío", amount=7_000_000)


def hold_so_far(world: World, code: str) -> None:
    """Check the rules that hold at any moment, also between two steps."""
    registry = [found for (found,) in world.rows("select code from tenders.registry")]
    tenders, archived = world.tenders(), world.rows(ARCHIVED)
    # A claimed code has exactly one tender.
    assert registry in ([], [code])
    assert len(tenders) + len(archived) == len(registry)
    deliveries = world.kit.deliveries(published)
    assert len({each.recipient for each in deliveries}) == len(deliveries) <= 2
    assert len(world.rows("select from {sereno}.events where type = %s", published.name)) <= 1
    # No tender is notified before a receipt.
    if deliveries and "delivered" not in world.states().values():
        assert not any(notified for *_, notified in tenders.values())
    _no_unexplained_duplicate_push(world, code)


def hold_when_notified(world: World, code: str) -> None:
    """Check that the tender is stored once and receipts confirm both pushes."""
    hold_so_far(world, code)
    assert world.tenders() == {code: ("Biobío", 7_000_000, "I. Municipalidad de Prueba 1", True)}
    assert world.states() == {"ana": "delivered", "ben": "delivered"}
    assert set(world.pushed()) == {(code, ANA), (code, BEN)}
    world.check_invariants()


def hold_when_archived(world: World, bucket: Bucket, code: str) -> None:
    """Check that all rows are archived once with matching checksums, and that the code stays in the registry."""
    hold_so_far(world, code)
    assert world.rows(ARCHIVED) == [(1, True)]
    assert not world.tenders()
    (row,) = bucket.rows("tenders.tenders")
    assert (row["code"], row["amount"], row["notified"]) == (code, 7_000_000, True)
    assert [each["state"] for each in bucket.rows("deliveries")] == ["delivered", "delivered"]
    for kind in ("tenders.tenders", "deliveries"):
        checksums = [hashlib.sha256(body).hexdigest() for body in bucket.bodies(kind)]
        described = [json.loads(body)["sha256"] for body in bucket.bodies(kind, ".json")]
        recorded = [
            sha256 for (sha256,) in world.rows("select sha256 from {sereno}.archive_files where kind = %s", kind)
        ]
        assert checksums == described == recorded
        assert len(checksums) == 1
    world.check_invariants()


def _no_unexplained_duplicate_push(world: World, code: str) -> None:
    """Check that each push was sent once, plus once for each unknown outcome that its delivery counts."""
    unknowns = dict(world.rows(UNKNOWNS))
    for installation, token in (("ana", ANA), ("ben", BEN)):
        if installation in unknowns:
            assert world.pushed().count((code, token)) <= 1 + unknowns[installation]
