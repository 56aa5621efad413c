"""Tenders are archived to S3 after twelve months, deliveries after ninety days; rows are dropped after a read-back."""

import hashlib

import pytest

from tenders.tests.conftest import ANA, Bucket, World

pytestmark = pytest.mark.slow


async def test_old_rows_become_verified_files(world: World, bucket: Bucket) -> None:
    code = world.authority.publish()
    await world.cycle()
    await world.until_receipts()
    world.kit.travel("80d")
    await world.nights()
    assert not bucket.rows("deliveries")
    world.kit.travel("10d")
    await world.nights()
    (delivery,) = bucket.rows("deliveries")
    assert (delivery["state"], delivery["tenant"]) == ("delivered", "tenders")
    assert not world.kit.deliveries()
    assert world.tenders()[code][-1] is True
    world.kit.travel("275d")
    await world.nights()
    (row,) = bucket.rows("tenders.tenders")
    assert (row["code"], row["notified"]) == (code, True)
    assert not world.tenders()
    world.check_invariants()


async def test_rows_are_dropped_only_after_the_grace_period_and_a_last_check(world: World, bucket: Bucket) -> None:
    world.authority.publish()
    await world.cycle()
    world.kit.travel("366d")
    await world.nights()
    batches = "select dropped_at is not null from {sereno}.archive_batches where source = 'tenders.tenders'"
    files = "select object, sha256 from {sereno}.archive_files where kind = 'tenders.tenders'"
    ((name, checksum),) = world.rows(files)
    assert [hashlib.sha256(body).hexdigest() for body in bucket.bodies("tenders.tenders")] == [checksum]
    bucket.client.delete_object(Bucket=bucket.name, Key=f"cold/{name}")
    world.kit.travel("7d")
    await world.nights(1)
    assert world.rows(batches) == [(False,)]
    await world.nights(1)
    world.kit.travel("7d")
    await world.nights(1)
    assert world.rows(batches) == [(True,)]
    assert len(bucket.rows("tenders.tenders")) == 1
    world.check_invariants()


async def test_an_archived_tender_is_not_ingested_a_second_time(world: World, bucket: Bucket) -> None:
    code = world.authority.publish()
    await world.cycle()
    world.kit.travel("366d")
    await world.nights()
    assert not world.tenders()
    await world.cycle()
    assert not world.tenders()
    assert world.pushed() == [(code, ANA)]
