"""Checks of groups, chains, results, signals and iterations. Pure: each yields what contradicts a promise."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

from tests.storm.app import ITEMS
from tests.storm.evidence import Evidence, Run
from tests.storm.journal import ResultsSeen

# Seconds. Results are in the history for a day; a clock that jumped further may have moved them to the archive.
HISTORY = 43_200.0


def groups_are_complete(evidence: Evidence) -> Iterator[str]:
    """The job after a group begins when all jobs of the group have succeeded."""
    sizes = {group.key: group.size for group in evidence.groups}
    for key, runs in _by_key(evidence, "gathered").items():
        members = _last_runs(_by_key(evidence, "member").get(key, ()))
        if key in sizes and len(members) != sizes[key]:
            yield f"{len(members)} jobs of the group {key} ran, not {sizes[key]}"
        yield from _waited(members, min(runs, key=lambda run: run.begin))


def chains_are_in_order(evidence: Evidence) -> Iterator[str]:
    """A job of a chain begins when the one before has succeeded."""
    for runs in _by_key(evidence, "link").values():
        first = {run.job: run for run in sorted(runs, key=lambda run: run.begin, reverse=True)}
        for before, job in pairwise(_last_runs(runs)):
            yield from _waited([before], first[job.job])


def results_are_right(evidence: Evidence) -> Iterator[str]:
    """A handler sees the results of all jobs that it waited for, unless they were archived meanwhile."""
    runs = {(run.job, run.attempt): run for run in evidence.runs}
    members, links = _by_key(evidence, "member"), _by_key(evidence, "link")
    for seen in evidence.results:
        run = runs.get((seen.job, seen.attempt))
        if run is None:
            yield f"attempt {seen.attempt} of job {seen.job} read results and never began"
            continue
        if run.task == "gathered":
            waited = _last_runs(members.get(run.key, ()))
            wanted = [2 * place for place in range(len(waited))]
        else:
            chain = _last_runs(links[run.key])
            place = [each.job for each in chain].index(run.job)
            waited = chain[place - 1 : place] if place else []
            wanted = [2 * (place - 1)] if place else []
        # A predecessor whose row is archived has None, and a job of a group is missing.
        found = {result for result in seen.results if result is not None}
        if seen.results != wanted and not (found < set(wanted) and _is_archived(evidence, waited, seen)):
            yield f"attempt {seen.attempt} of job {seen.job} ({run.task}) saw the results {seen.results}, not {wanted}"


def signals_are_received(evidence: Evidence) -> Iterator[str]:
    """A job that waited for a signal ended with its value, the same in each attempt."""
    received = defaultdict(set)
    for signal in evidence.signals:
        received[signal.job].add(signal.value)
        if signal.value != int(signal.name.rpartition(":")[2]):
            yield f"job {signal.job} got the value {signal.value} of the signal {signal.name}"
    for job in evidence.state.ended:
        if job.task == "signalled" and job.state == "succeeded" and len(received[job.id]) != 1:
            yield f"job {job.id} succeeded with {len(received[job.id])} values of its signal"


def items_are_committed_once(evidence: Evidence) -> Iterator[str]:
    """Each item of an iteration is committed once. A dead letter that was retried begins again."""
    items = Counter(evidence.state.items)
    begins = Counter(job for job, _, outcome in evidence.state.attempts if outcome == "dead")
    for job in evidence.state.ended:
        if job.task != "iterated" or job.state != "succeeded":
            continue
        for item in range(ITEMS):
            count = items[job.id, item]
            if not 1 <= count <= 1 + begins[job.id]:
                yield f"item {item} of job {job.id} was committed {count} times"


CHECKS: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    groups_are_complete,
    chains_are_in_order,
    results_are_right,
    signals_are_received,
    items_are_committed_once,
)


def _by_key(evidence: Evidence, task: str) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for run in evidence.runs:
        if run.task == task:
            found[run.key].append(run)
    return found


def _last_runs(runs: "list[Run] | tuple[()]") -> list[Run]:
    """Return the last attempt of each job, by their ids."""
    last = {run.job: run for run in sorted(runs, key=lambda run: (run.job, run.attempt))}
    return list(last.values())


def _waited(before: list[Run], after: Run) -> Iterator[str]:
    for run in before:
        if run.outcome != "ok" or run.end > after.begin:
            ended = "succeeded" if run.outcome == "ok" else f"ended ({run.outcome})"
            yield f"job {after.job} ({after.task} {after.key}) began before job {run.job}, which it waits for, {ended}"


def _is_archived(evidence: Evidence, waited: list[Run], seen: ResultsSeen) -> bool:
    since = min((run.ended_wall for run in waited), default=seen.wall)
    return sum(jump.seconds for jump in evidence.jumps if jump.after >= since and jump.before <= seen.wall) >= HISTORY
