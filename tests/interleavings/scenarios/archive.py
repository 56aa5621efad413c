"""The archive: moves beside requeues and deletes, exports, drops beside restores and failed verifications."""

from collections import Counter
from functools import partial

import psycopg

from sereno.archive import archiver, restore_store, store
from sereno.jobs import transitions
from tests.archive.archive_steps import DAY
from tests.interleavings.program import Program, ReplyLost, Run
from tests.interleavings.scenario import Scenario
from tests.interleavings.scenarios.archive_world import (
    ATTEMPTS,
    KEEP,
    ArchiveProgram,
    ArchiveWorld,
    archived_jobs,
    attempts_of,
    directory,
    drop_rest,
    export_rest,
    exported,
    held,
    move_rest,
    moves,
    nothing_lost_or_doubled,
    old_dead,
    planned,
    read_back,
    restores,
    storage,
    written,
)
from tests.interleavings.scenarios.job_world import both, claims, does, nothing_lost, settles, states
from tests.jobs.job_steps import Connection, advance, do

A = frozenset("A")
# The batch of the jobs; that of their attempts is the second.
JOBS = 1
# Children of a page, so that three jobs with two attempts each need three pages.
PAGE = 3


# Moves


def _all_moved(connection: Connection, world: ArchiveWorld) -> None:
    nothing_lost_or_doubled(connection, world)
    move_rest(connection)
    nothing_lost_or_doubled(connection, world)
    left = [*states(connection), *attempts_of(connection, archived=False)]
    assert not left, f"not archived: {left}"


TWO_MOVES = Scenario(
    name="two_moves",
    capability="archive",
    only_rows=False,
    set_up=old_dead,
    programs={"A": moves(1), "B": moves(1)},
    check=_all_moved,
    faulty=A,
    never_waits=True,
)


def _with_children_left(connection: Connection) -> ArchiveWorld:
    """Return a world in which jobs were moved with the first page of their attempts."""
    world = old_dead(connection, 3)
    do(connection, store.move_rows("dead", 30.0 * DAY, PAGE))
    return world


def _moves_children(_world: ArchiveWorld) -> Program:
    """An archiver that continues an interrupted move. After a lost reply its job is retried."""
    for _ in range(2):
        try:
            for batch in (yield Run(store.without_children())):
                is_done = False
                while not is_done:
                    _, is_done = yield Run(store.move_children(batch, PAGE))
        except ReplyLost:
            continue
        return


TWO_MOVES_OF_CHILDREN = Scenario(
    name="two_moves_of_children",
    capability="archive",
    only_rows=False,
    set_up=_with_children_left,
    programs={"A": _moves_children, "B": _moves_children},
    check=_all_moved,
    faulty=A,
)


def _in_one_place(connection: Connection, world: ArchiveWorld, gone: set[int]) -> list[int]:
    """Fail unless each job and each of its attempts is in one place; deleted ones in none. Return archived jobs."""
    archived = archived_jobs(connection)
    places = Counter([*archived, *states(connection)])
    assert places == Counter(set(world.ids) - gone), f"jobs are in {places} places, {gone} were deleted"
    found = attempts_of(connection)
    assert not found or max(found.values()) == 1, f"attempts are there twice: {found}"
    assert not gone & {job for job, _ in found}, f"attempts of deleted jobs {gone} are left: {found}"
    missing = {(job, number) for job in places for number in ATTEMPTS} - found.keys()
    assert not missing, f"attempts are lost: {missing}"
    return archived


def _archived_or_requeued(connection: Connection, world: ArchiveWorld) -> None:
    archived = _in_one_place(connection, world, set())
    both_done = set(world.notes.get("requeue", [])) & set(archived)
    assert not both_done, f"jobs were requeued and archived: {both_done}"
    nothing_lost(connection, world, archived)


MOVE_AND_REQUEUE = Scenario(
    name="move_and_requeue",
    capability="archive",
    only_rows=False,
    set_up=old_dead,
    programs={
        "A": moves(100),
        "B": does("requeue", lambda world: transitions.requeue(world.ids)),
        "C": both(claims("A"), settles("A")),
    },
    check=_archived_or_requeued,
    faulty=frozenset("B"),
)


def _archived_or_deleted(connection: Connection, world: ArchiveWorld) -> None:
    gone = set(world.notes.get("delete", []))
    if "delete again" in world.notes:
        # The first reply was lost: what is in no table was deleted then.
        gone = set(world.ids) - {*archived_jobs(connection), *states(connection)}
    _in_one_place(connection, world, gone)


MOVE_AND_DELETE = Scenario(
    name="move_and_delete",
    capability="archive",
    only_rows=False,
    set_up=old_dead,
    programs={"A": moves(1), "B": does("delete", lambda world: transitions.delete(world.ids))},
    check=_archived_or_deleted,
    faulty=frozenset("AB"),
)


# Files


def _exports(version: str) -> ArchiveProgram:
    """Return an archiver that writes the file of a batch, reads it back and settles the batch."""

    def program(world: ArchiveWorld) -> Program:
        described = yield Run(store.describe(JOBS, 1))
        try:
            with written(world, JOBS, described, version) as (manifest, measured):
                if not (yield Run(archiver._uploaded(manifest, measured))):
                    return
                read_back(manifest)
            if not (yield Run(store.verified(JOBS, 1, manifest.sha256))):
                yield Run(store.not_written(JOBS, 1, "another archiver recorded it with a different checksum"))
            yield Run(store.settle_batch(JOBS, 7.0 * DAY))
        except ReplyLost:
            # The job fails; its next attempt is in the check.
            return

    return program


def _recorded_file_is_there(connection: Connection) -> None:
    """Fail if a verified file differs from what is recorded."""
    query = "select object, sha256 from sereno.archive_files where verified_at is not null"
    for name, sha256 in connection.execute(query).fetchall():
        found, _ = storage().get(name, directory() / "read")
        assert found == sha256, f"{name} has the checksum {found}, not {sha256}"


def _exported_once(connection: Connection, world: ArchiveWorld) -> None:
    _recorded_file_is_there(connection)
    failed = connection.execute(
        "select count(*) from sereno.archive_files where failed_at is not null and verified_at is not null"
    )
    assert failed.fetchone() == (0,), "a verified file is recorded as failed"
    export_rest(connection, world)
    _recorded_file_is_there(connection)
    advance(connection, 8 * DAY)
    drop_rest(connection)
    nothing_lost_or_doubled(connection, world)


TWO_EXPORTERS = Scenario(
    name="two_exporters",
    capability="archive",
    only_rows=False,
    set_up=planned,
    programs={"A": _exports("1"), "B": _exports("2")},
    check=_exported_once,
    faulty=A,
)


# Drops


def _drops(world: ArchiveWorld) -> Program:
    """An archiver that drops the batch, if its file is there and nothing has changed."""
    for file in (yield Run(store.files_of(JOBS))):
        assert storage().length(file.object) == file.bytes
    was_failed = world.notes.get("failed", False)
    try:
        is_dropped = yield Run(store.drop_batch(JOBS))
    except (psycopg.errors.LockNotAvailable, ReplyLost):
        # The next run drops it.
        return
    except psycopg.errors.DataError as error:
        yield Run(store.batch_failed(JOBS, str(error)))
        return
    assert not (was_failed and is_dropped), "a batch was dropped whose file is known to be broken"


def _dropped(connection: Connection, world: ArchiveWorld) -> None:
    drop_rest(connection)
    nothing_lost_or_doubled(connection, world)


TWO_DROPS = Scenario(
    name="two_drops",
    capability="archive",
    only_rows=False,
    set_up=partial(exported, attempts=False),
    programs={"A": _drops, "B": _drops},
    check=_dropped,
    faulty=A,
)


def _restored_once(connection: Connection, world: ArchiveWorld) -> None:
    assert "restored" in world.notes, "the restore was never possible"
    assert states(connection).keys() == {1}, f"restored: {states(connection)}"
    assert attempts_of(connection, archived=False) == Counter((1, number) for number in ATTEMPTS)
    marks = connection.execute("select kind, key from sereno.restored order by 1, 2").fetchall()
    assert marks == [*[("attempts", f"1\t{number}") for number in ATTEMPTS], ("jobs", "1")], f"marks: {marks}"
    drop_rest(connection)
    advance(connection, KEEP + 1)
    _expire(connection)
    nothing_lost_or_doubled(connection, world)


def _expire(connection: Connection) -> None:
    for kind in do(connection, restore_store.expired_kinds()):
        while do(connection, restore_store.remove_expired(kind)):
            pass


DROP_AND_RESTORE = Scenario(
    name="drop_and_restore",
    capability="archive",
    only_rows=False,
    set_up=exported,
    programs={"A": _drops, "B": restores(1)},
    check=_restored_once,
    faulty=A,
)


def _broken(connection: Connection) -> ArchiveWorld:
    """Return a world of a verified batch whose file has been damaged since."""
    world = exported(connection, attempts=False)
    for (name,) in connection.execute("select object from sereno.archive_files").fetchall():
        file = directory() / name
        file.write_bytes(bytes(file.stat().st_size))
    return world


def _finds_it_broken(world: ArchiveWorld) -> Program:
    """A verifier that has read a damaged file."""
    yield Run(store.failed(JOBS, 1, "its checksum differs"))
    world.notes["failed"] = True
    world.notes["reopened"] = yield Run(store.reopen(JOBS, 1))


def _written_again_or_dropped_before(connection: Connection, world: ArchiveWorld) -> None:
    dropped = connection.execute("select dropped_at is not null from sereno.archive_batches").fetchone() == (True,)
    if "reopened" in world.notes:
        assert world.notes["reopened"] != dropped, f"dropped: {dropped}, reopened: {world.notes['reopened']}"
    if dropped:
        # The archiver was faster: the damage was found too late.
        return
    # The next verification reopens it, if a kill has prevented that.
    do(connection, store.failed(JOBS, 1, "its checksum differs"))
    assert do(connection, store.reopen(JOBS, 1))
    export_rest(connection, world)
    drop_rest(connection)
    nothing_lost_or_doubled(connection, world)


DROP_AND_BROKEN_FILE = Scenario(
    name="drop_and_broken_file",
    capability="archive",
    only_rows=False,
    set_up=_broken,
    programs={"A": _drops, "V": _finds_it_broken},
    check=_written_again_or_dropped_before,
    faulty=frozenset("V"),
)


# Restored rows


def _restored_both_once(connection: Connection, world: ArchiveWorld) -> None:
    assert "restored" in world.notes
    assert states(connection).keys() == set(world.ids)
    audited = connection.execute("select sum((detail ->> 'count')::int) from sereno.audit").fetchone()
    assert audited == (len(world.ids),), f"{audited} rows were restored according to the audit log"
    advance(connection, KEEP + 1)
    _expire(connection)
    nothing_lost_or_doubled(connection, world)


TWO_RESTORES = Scenario(
    name="two_restores",
    capability="archive",
    only_rows=False,
    set_up=partial(held, attempts=False),
    programs={"A": restores(1, 2), "B": restores(2, 1)},
    check=_restored_both_once,
)


def _restored(connection: Connection) -> ArchiveWorld:
    """Return a world of a restored job whose time is over."""
    world = held(connection, 1)
    program = restores(1)(world)
    run = next(program)
    while True:
        with connection.transaction():
            result = do(connection, run.operation)
        try:
            run = program.send(result)
        except StopIteration:
            break
    advance(connection, KEEP + 1)
    world.sessions = {"A": 0}
    return world


def _expires(_world: ArchiveWorld) -> Program:
    """An archiver that removes restored rows when their time is over."""
    for kind in (yield Run(restore_store.expired_kinds())):
        while (yield Run(restore_store.remove_expired(kind))):
            pass


def _removed_or_requeued(connection: Connection, world: ArchiveWorld) -> None:
    _expire(connection)
    assert connection.execute("select count(*) from sereno.restored").fetchone() == (0,)
    requeued = states(connection).keys()
    assert requeued >= set(world.notes.get("requeue", [])), "a requeued job was removed"
    expected = Counter((1, number) for number in (*ATTEMPTS, ATTEMPTS[-1] + 1)) if requeued else Counter()
    assert attempts_of(connection, archived=False) == expected
    assert archived_jobs(connection) == world.ids, "an archived row is lost"
    world.ids = sorted(requeued)
    nothing_lost(connection, world)


EXPIRY_AND_REQUEUE = Scenario(
    name="expiry_and_requeue",
    capability="archive",
    only_rows=False,
    set_up=_restored,
    programs={"A": _expires, "B": does("requeue", lambda world: transitions.requeue(world.ids))},
    check=_removed_or_requeued,
    faulty=frozenset("AB"),
)

SCENARIOS = (
    TWO_MOVES,
    TWO_MOVES_OF_CHILDREN,
    MOVE_AND_REQUEUE,
    MOVE_AND_DELETE,
    TWO_EXPORTERS,
    TWO_DROPS,
    DROP_AND_RESTORE,
    DROP_AND_BROKEN_FILE,
    TWO_RESTORES,
    EXPIRY_AND_REQUEUE,
)
