"""Broadcasts: an event is cancelled while it is fanned out, and while its deliveries are sent."""

from collections import Counter

from sereno.notifications import broadcasts
from sereno.notifications.event_operations import cancel_event
from tests.interleavings.program import Program, ReplyLost, Run
from tests.interleavings.scenario import Scenario
from tests.interleavings.scenarios.delivery_world import PARTS, DeliveryWorld, finish, pending, published, sends
from tests.jobs.job_steps import Connection


def _cancels(world: DeliveryWorld) -> Program:
    """An operator cancels the event, again if the reply was lost; the job then skips what waits."""
    try:
        yield Run(cancel_event(world.event, PARTS.jobs), atomic=True)
    except ReplyLost:
        yield Run(cancel_event(world.event, PARTS.jobs), atomic=True)
    world.notes["cancelled"] = True
    yield Run(broadcasts.skip_cancelled(world.event, 0), atomic=True)


def _fans_out(world: DeliveryWorld) -> Program:
    """A fan-out that begins after the cancellation creates nothing."""
    was_cancelled = world.notes.get("cancelled", False)
    step = yield Run(PARTS.fanout.create_deliveries(world.event), atomic=True)
    assert not (was_cancelled and step.created), "a cancelled event was fanned out"


def _sent_or_skipped(connection: Connection, world: DeliveryWorld) -> None:
    """Each message was sent once or skipped; after the cancellation, none was sent that waited."""
    before = Counter(world.sent)
    final = finish(connection, world)
    assert max(Counter(world.sent).values(), default=1) == 1, f"sent twice: {world.sent}"
    wrong = {number: state for number, state in final.items() if (state == "skipped") == (number in world.sent)}
    assert not wrong, f"sent and skipped, or neither: {wrong}"
    if world.notes.get("cancelled"):
        assert Counter(world.sent) == before, f"sent after the cancellation: {Counter(world.sent) - before}"


CANCEL_AND_SEND = Scenario(
    name="cancel_and_send",
    capability="notifications",
    set_up=pending,
    programs={"A": sends("A"), "B": sends("B"), "C": _cancels},
    check=_sent_or_skipped,
    faulty=frozenset("C"),
)

CANCEL_AND_FAN_OUT = Scenario(
    name="cancel_and_fan_out",
    capability="notifications",
    set_up=published,
    programs={"A": _fans_out, "C": _cancels},
    check=_sent_or_skipped,
    faulty=frozenset("AC"),
)

SCENARIOS = (CANCEL_AND_SEND, CANCEL_AND_FAN_OUT)
