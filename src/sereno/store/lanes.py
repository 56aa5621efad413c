"""Jobs with limits are claimed lane by lane: take, decide, write, in one transaction."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from sereno.domain.job import ClaimedJob
from sereno.domain.lanes import Decision, Gate, Lane, Room, Taken, decide
from sereno.domain.stored import encoder
from sereno.store.statement import Operation, Statement, queries

_sql = queries("lanes")
_taken = msgspec.json.Decoder(Taken)
_claimed = msgspec.json.Decoder(list[ClaimedJob])
_got = msgspec.json.Decoder(list[tuple[int, list[int]]])
_opened = msgspec.json.Decoder(tuple[int, int | None, int])

# How far a lane goes back whose jobs cannot be run here: behind what arrived in the meantime.
BACK = 1000


class LaneClaim(msgspec.Struct, kw_only=True):
    """What a claim of lanes got.

    `unkeyed`: those of the jobs that carry no key, of queues with a limit of their own. `rated`: those that
    passed a rate, and start at once. `holding`: the gates in which a job holds a slot.
    `next_look`: seconds until a gate is due.
    """

    jobs: list[ClaimedJob] = []
    unkeyed: set[int] = set()
    rated: set[int] = set()
    holding: dict[int, list[int]] = {}
    missed: set[int]
    more: set[str]
    is_contended: bool
    next_look: float | None


def open_lanes(floor: int) -> Operation[tuple[int, int | None]]:
    """Read wake-ups; answers how many there were, and the lowest number."""
    rows = yield Statement(_sql["open_lanes"], {"floor": floor})
    count, lowest, _ = _opened.decode(rows[0][0])
    return count, lowest


def claim_lanes(
    session: int,
    tasks: Collection[str],
    asked: Sequence[Mapping[str, Any]],
    freed: Mapping[int, int],
) -> Operation[LaneClaim]:
    """`asked`: objects with queue, room, bands and floors, as for plain jobs. `freed`: gates and how many left them."""
    rows = yield Statement(
        _sql["take"],
        {
            "asked": encoder.encode(asked).decode(),
            "freed": encoder.encode([{"gate": gate, "most": most} for gate, most in freed.items()]).decode(),
        },
    )
    taken = _taken.decode(rows[0][0])
    rooms = {item["queue"]: Room(item["now"], item["room"]) for item in asked}
    decision = decide(taken, rooms, asked[0]["bands"])
    locked = {behind.gate for behind in taken.behind}
    answer = LaneClaim(
        [],
        set(),
        set(),
        {},
        decision.missed | (freed.keys() - locked),
        decision.more,
        decision.is_contended,
        taken.next_look,
    )
    if not decision.lanes and not decision.gates:
        return answer
    floors = {item["queue"]: item["floors"] for item in asked}
    rows = yield Statement(
        _sql["claim"],
        {
            "session": session,
            "tasks": list(tasks),
            "lanes": encoder.encode(
                [_lane_row(number, lane, floors) for number, lane in enumerate(decision.lanes)]
            ).decode(),
            "gates": encoder.encode([_gate_row(gate) for gate in decision.gates]).decode(),
            "moment": taken.moment,
            "back": BACK,
        },
    )
    answer.jobs = _claimed.decode(rows[0][0])
    got = _got.decode(rows[0][1])
    answer.holding = _holding(decision, got, taken.gates)
    answer.unkeyed = {job for number, ids in got if decision.lanes[number].id is None for job in ids}
    answer.rated = {job for number, ids in got if decision.lanes[number].is_rated for job in ids}
    return answer


def hand_over(gates: Collection[int]) -> Operation[set[int]]:
    """Gates that came free here are for whoever looks next; answers those that were told."""
    rows = yield Statement(_sql["hand_over"], {"gates": sorted(gates)})
    return set(msgspec.json.decode(rows[0][0]))


def _lane_row(number: int, lane: Lane, floors: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "number": number,
        "lane": lane.id,
        "queue": lane.queue,
        "count": lane.count,
        "gates": lane.gates,
        "units": lane.units,
        "turn": lane.turn,
        "floor_priority": lane.floor_priority,
        "floor_seq": lane.floor_seq,
    }
    if lane.waits is not None:
        row["waits"] = lane.waits
    if lane.order_id is not None:
        row["order_id"] = lane.order_id
    if lane.fair is not None:
        row |= {"fair": lane.fair, "weight": lane.weight}
    if lane.id is None:
        row["floors"] = floors[lane.queue]
    return row


def _gate_row(gate: Gate) -> dict[str, Any]:
    return {
        "id": gate.id,
        "kind": gate.kind,
        "slots": gate.slots,
        "per_second": gate.per_second,
        "burst": gate.burst,
        "tokens": gate.tokens,
        "closed": gate.closed,
        "held": gate.held,
        "need": gate.need,
        "is_waited": gate.need is not None,
    }


def _holding(decision: Decision, got: Sequence[tuple[int, list[int]]], gates: Sequence[Gate]) -> dict[int, list[int]]:
    """For each job the gates in which it holds a slot: they are free again when it ends."""
    with_slots = {gate.id for gate in gates if gate.kind != "rate"}
    holding: dict[int, list[int]] = {}
    for number, ids in got:
        passed = [gate for gate in decision.lanes[number].gates if gate in with_slots]
        if passed:
            holding.update(dict.fromkeys(ids, passed))
    return holding
