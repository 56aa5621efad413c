"""Only the leader of a stream knows how many messages it has; what other nodes answer is refused."""

import pytest
from nats.js import api

from sereno.carriers.jetstream import _is_from_leader

# Three replicas: what a node says of its leader and of the other nodes, and whether the leader has said it.
ANSWERS: tuple[tuple[str | None, list[str], bool], ...] = (
    ("a", ["b", "c"], True),
    ("a", ["b"], True),
    (None, ["a", "b", "c"], False),
    ("b", ["a", "b", "c"], False),
    ("b", ["b", "c"], False),
    ("a", [], False),
)


def answer(leader: str | None, replicas: list[str], wanted: int) -> api.StreamInfo:
    peers = [api.PeerInfo(name=name, current=True) for name in replicas]
    return api.StreamInfo(
        config=api.StreamConfig(name="s", num_replicas=wanted),
        state=api.StreamState(messages=0, bytes=0, first_seq=0, last_seq=0, consumer_count=1),
        cluster=api.ClusterInfo(name="jobs", leader=leader, replicas=peers),
    )


def test_an_answer_of_another_node_is_recognised(subtests: pytest.Subtests) -> None:
    for leader, replicas, expected in ANSWERS:
        with subtests.test(leader=leader, replicas=replicas):
            assert _is_from_leader(answer(leader, replicas, 3)) is expected


def test_a_stream_with_one_replica_has_no_other_nodes() -> None:
    assert _is_from_leader(answer("a", [], 1))
    alone = answer(None, [], 1)
    alone.cluster = None
    assert _is_from_leader(alone)
