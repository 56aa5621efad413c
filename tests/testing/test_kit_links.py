"""The test kit with dependencies and groups: `drain` runs them to their end, and assertions can fail."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from sereno import Context, Dead, Sereno
from sereno.jobs.task_handle import Task
from sereno.testing.kit import Kit

MakeKit = Callable[[Sereno], Kit]


class Chain:
    """An application whose task records its calls; a call with the name "wrong" dies the first time."""

    def __init__(self, app: Sereno) -> None:
        self.app = app
        self.ran: list[str] = []
        self.work: Task[[str], None] = app.task(name="work")(self._work)

    def _work(self, name: str) -> None:
        self.ran.append(name)
        if name == "wrong" and self.ran.count(name) == 1:
            raise Dead("wrong")


@pytest.fixture
def chain(database_url: str) -> Iterator[Chain]:
    made = Chain(Sereno(database_url))
    yield made
    made.app.close()


@pytest.mark.slow
def test_drain_runs_a_chain_to_its_end(chain: Chain, sereno_kit: MakeKit) -> None:
    kit = sereno_kit(chain.app)
    first = chain.work.enqueue("first")
    second = chain.work.using(after=[first]).enqueue("second")
    third = chain.work.using(after=[first, second]).enqueue("third")
    assert kit.assert_waiting(third, after=[first, second]).id == third.id
    assert kit.assert_not_waiting(first).state == "ready"
    assert len(kit.drain().jobs) == 3
    assert chain.ran == ["first", "second", "third"]
    kit.assert_not_waiting(third)


def test_the_assertions_about_waiting_jobs_can_fail(chain: Chain, sereno_kit: MakeKit) -> None:
    kit = sereno_kit(chain.app)
    first = chain.work.enqueue("first")
    second = chain.work.using(after=[first]).enqueue("second")
    with pytest.raises(AssertionError, match=r"does not wait for other jobs: work\(name='first'\) ready"):
        kit.assert_waiting(first)
    with pytest.raises(AssertionError, match=rf"job {second.id} waits for the jobs \[{first.id}\], not \[\]"):
        kit.assert_waiting(second, after=[])
    with pytest.raises(AssertionError, match=rf"job {second.id} waits for the jobs \[{first.id}\]"):
        kit.assert_not_waiting(second)


@pytest.mark.slow
def test_drain_runs_a_group_and_stops_at_a_dead_job(chain: Chain, sereno_kit: MakeKit) -> None:
    kit = sereno_kit(chain.app)
    jobs = [chain.work.job(name) for name in ("one", "wrong", "two")]
    made = chain.app.group(jobs, then=chain.work.job("report")).enqueue()
    assert made.then is not None
    (dead,) = kit.drain().failed
    kit.assert_waiting(made.then, after=[dead.id])
    assert chain.app.jobs.get(dead.id).retry().done == [dead.id]
    kit.drain()
    assert kit.job(made.then).state == "succeeded"
    assert chain.ran[-1] == "report"


@pytest.mark.slow
def test_drain_cancels_what_a_dead_job_cancels(chain: Chain, sereno_kit: MakeKit) -> None:
    kit = sereno_kit(chain.app)
    made = chain.app.group([chain.work.job("wrong")], then=chain.work.job("report"), on_dead="cancel").enqueue()
    assert made.then is not None
    after = chain.work.using(after=[made.then]).enqueue("after")
    assert Counter(job.state for job in kit.drain().jobs) == {"dead": 1, "cancelled": 2}
    assert kit.job(after).state == "cancelled"
    late = chain.work.using(after=[after], on_dead="continue").enqueue("late")
    stopped = chain.work.using(after=[after]).enqueue("stopped")
    kit.drain()
    assert (kit.job(late).state, kit.job(stopped).state) == ("succeeded", "cancelled")


@pytest.mark.slow
def test_drain_follows_jobs_that_wait_for_the_one_that_enqueues_them(chain: Chain, sereno_kit: MakeKit) -> None:
    @chain.app.task
    def start(ctx: Context) -> None:
        chain.work.using(after=[ctx.job_id]).enqueue("follows")

    kit = sereno_kit(chain.app)
    start.enqueue()
    kit.drain()
    assert chain.ran == ["follows"]
