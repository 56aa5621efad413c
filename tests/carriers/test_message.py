"""The body of a message: a batch of jobs there and back, and everything that is not one."""

import msgspec
import pytest

from sereno.carriers.message import UndecodableMessage, claimed_jobs, decode, encode, stored_row
from sereno.carriers.publisher import BYTES_IN_MESSAGE, JOBS_IN_MESSAGE, _chunks
from sereno.jobs.job import JobOptions, NewJob


def job(number: int, task: str = "click", **options: object) -> NewJob:
    return NewJob(task, b'{"number": %d}' % number, JobOptions(queue="clicks", **options))  # type: ignore[arg-type]


def test_a_batch_there_and_back() -> None:
    jobs = [job(1), job(2, tenant="r42", trace="t", tags=["a"], priority=1), job(3, "other")]
    batch = decode(encode("clicks", [7, 8, 9], jobs, 1000.5))
    assert (batch.queue, batch.published_at, batch.ids, batch.all_tasks) == (
        "clicks",
        1000.5,
        [7, 8, 9],
        ["click", "click", "other"],
    )
    claimed = claimed_jobs(batch, 1002.0)
    assert [(each.id, each.attempt, each.priority, each.tenant, each.trace) for each in claimed] == [
        (7, 1, 5, None, None),
        (8, 1, 1, "r42", "t"),
        (9, 1, 5, None, None),
    ]
    assert [msgspec.json.decode(each.args) for each in claimed] == [{"number": 1}, {"number": 2}, {"number": 3}]
    assert batch.more is not None
    row = stored_row(batch, 1, batch.more[0])
    assert (row["id"], row["task"], row["tenant"], row["tags"], row["priority"]) == (8, "click", "r42", ["a"], 1)
    assert stored_row(batch, 2, None)["task"] == "other"
    assert row["created_at"].timestamp() == 1000.5


def test_one_task_is_named_once() -> None:
    body = encode("clicks", [1, 2], [job(1), job(2)], 0.0)
    assert msgspec.json.decode(body)[4] == ["click"]
    assert msgspec.json.decode(body)[6] is None


def test_what_is_not_a_batch_is_refused(subtests: pytest.Subtests) -> None:
    good = msgspec.json.decode(encode("clicks", [1, 2], [job(1), job(2)], 0.0))

    def changed(place: int, value: object) -> bytes:
        return msgspec.json.encode([*good[:place], value, *good[place + 1 :]])

    not_a_batch, no_match = "the message is not a batch of jobs", "the lists of the message do not match each other"
    bodies = {
        b"": not_a_batch,
        b"null": not_a_batch,
        b"\xff\xfe": not_a_batch,
        b"[" * 100_000: not_a_batch,
        b"{}": not_a_batch,
        changed(3, ["1", "2"]): not_a_batch,
        changed(0, 2): "the message has version 2, and this release reads version 1",
        changed(3, []): no_match,
        changed(3, [1, 1]): no_match,
        changed(3, [1, 2, 3]): no_match,
        changed(4, []): no_match,
        changed(5, [{}]): no_match,
        changed(6, [[2]]): "the message has fields of a job that it does not have",
        changed(6, [[-1]]): "the message has fields of a job that it does not have",
    }
    for body, message in bodies.items():
        with subtests.test(body=body[:40]), pytest.raises(UndecodableMessage) as refused:
            decode(body)
        assert str(refused.value).startswith(message)


def test_chunks_have_a_bounded_number_of_jobs_and_bytes() -> None:
    items = [(number, job(number)) for number in range(JOBS_IN_MESSAGE + 1)]
    assert [len(chunk) for chunk in _chunks(items)] == [JOBS_IN_MESSAGE, 1]
    large = NewJob("click", b'"%s"' % (b"x" * BYTES_IN_MESSAGE), JobOptions(queue="clicks"))
    assert [len(chunk) for chunk in _chunks([(1, large), (2, job(2)), (3, job(3)), (4, large)])] == [1, 2, 1]
    assert list(_chunks([])) == []
