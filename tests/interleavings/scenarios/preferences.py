"""Preferences of one recipient that are changed in two windows of the preference centre, and by an unsubscribe link."""

from dataclasses import dataclass, field

from sereno import Sereno
from sereno.notifications.event_types import kind_of
from sereno.notifications.recipients import store
from sereno.notifications.recipients.preference_centre import PreferenceChanges, change_centre, read_centre
from sereno.notifications.recipients.preference_choices import ChoiceChange
from sereno.notifications.recipients.unsubscribe import Unsubscribe
from tests.interleavings.program import Program, Run
from tests.interleavings.scenario import Scenario
from tests.jobs.job_steps import Connection, do
from tests.notifications.conftest import Pager, Tender

# Never connected: only its operations are used.
APP = Sereno("postgresql://localhost/unused")
PAGER = Pager()
PUBLISHED, CLOSED = "tender.published", "tender.closed"
for name in (PUBLISHED, CLOSED):
    APP.event(name, Tender, channels=[PAGER], category="tenders")
KINDS = [kind_of(each, APP.channels.resolve) for each in APP.notifications.definitions.values()]


@dataclass
class PreferenceWorld:
    """`done`: the changes that were saved, or may have been."""

    done: list[str] = field(default_factory=list)


def _recipient(connection: Connection) -> PreferenceWorld:
    """Return a world of a recipient with a choice of their own for each event type."""
    APP.recipients.upsert("ana", {"pager": "p1"}, conn=connection)
    APP.recipients.prefer("ana", event=PUBLISHED, channel="pager", wanted=True, conn=connection)
    APP.recipients.prefer("ana", event=CLOSED, channel="pager", wanted=False, conn=connection)
    return PreferenceWorld()


def _saves(world: PreferenceWorld, *, wanted: bool) -> Program:
    choice = ChoiceChange(category="tenders", channel="pager", wanted=wanted)
    world.done.append("on" if wanted else "off")
    yield Run(change_centre("ana", PreferenceChanges(choices=[choice]), KINDS, tenant=None), atomic=True)


def _turns_on(world: PreferenceWorld) -> Program:
    yield from _saves(world, wanted=True)


def _turns_off(world: PreferenceWorld) -> Program:
    yield from _saves(world, wanted=False)


def _unsubscribes(world: PreferenceWorld) -> Program:
    world.done.append("off")
    about = Unsubscribe(None, "ana", "pager", 1, "tenders", PUBLISHED)
    yield Run(store.unsubscribe(about, "link"), atomic=True)


def _one_change_was_last(connection: Connection, world: PreferenceWorld) -> None:
    """Each change is about all event types of the category, so the last one decides about all of them."""
    found = do(connection, read_centre("ana", KINDS, tenant=None))
    wanted = {cell.wanted for line in found.lines if line.event for cell in line.channels}
    assert len(wanted) == 1, f"{sorted(world.done)} were mixed: {found.lines}"


SCENARIOS = [
    Scenario(
        name="preference_changes",
        capability="notifications",
        set_up=_recipient,
        programs={"A": _turns_off, "B": _turns_on, "U": _unsubscribes},
        check=_one_change_was_last,
    )
]
