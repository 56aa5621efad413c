"""Receipts that two jobs requested at once, while the provider also reports by its webhook."""

from sereno.channels.outcome import Receipt
from tests.interleavings.program import Program, Run
from tests.interleavings.scenario import Scenario
from tests.interleavings.scenarios.delivery_world import (
    PARTS,
    DeliveryProgram,
    DeliveryWorld,
    fanned_out,
    finish,
    send_all,
)
from tests.jobs.job_steps import Connection


def _sent(connection: Connection) -> DeliveryWorld:
    """Return a world of sent deliveries."""
    world = fanned_out(connection)
    send_all(connection, world)
    return world


def _requests(name: str) -> DeliveryProgram:
    """Return a job that applies what the provider returned: all messages are delivered."""

    def program(world: DeliveryWorld) -> Program:
        requested = {f"p{delivery}.1": [delivery] for delivery in sorted(world.sent)}
        receipts = [Receipt(provider_id=each, outcome="delivered") for each in requested]
        applied = yield Run(PARTS.receipts._apply("pager", "", receipts, requested), atomic=True)
        world.notes[name] = applied.moved

    return program


def _reads(world: DeliveryWorld) -> Program:
    """The provider reports that the last message was read."""
    receipt = Receipt(provider_id=f"p{max(world.sent)}.1", outcome="read")
    yield Run(PARTS.receipts._apply("pager", "", [receipt]), atomic=True)
    world.notes["read"] = True


def _forwards_only(connection: Connection, world: DeliveryWorld) -> None:
    """Each delivery is delivered once, and what was read stays read."""
    final, last = finish(connection, world), max(world.sent)
    applied = world.notes.get("A", 0) + world.notes.get("B", 0)
    is_read = world.notes.get("read", False)
    assert final[last] == ("read" if is_read else "delivered" if applied else "sent"), f"the last one is {final[last]}"
    assert {state for delivery, state in final.items() if delivery != last} <= {"sent", "delivered"}
    assert applied <= len(world.sent), f"{applied} receipts of {len(world.sent)} messages were applied"


REQUESTED_RECEIPTS = Scenario(
    name="requested_receipts",
    capability="notifications",
    set_up=_sent,
    programs={"A": _requests("A"), "B": _requests("B"), "W": _reads},
    check=_forwards_only,
)

SCENARIOS = (REQUESTED_RECEIPTS,)
