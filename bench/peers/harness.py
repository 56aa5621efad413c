"""Shared part of the Python peer programs: command line, clock and payload.

    <peer>_program.py install URL
    <peer>_program.py one     URL JOBS          prints the seconds it took
    <peer>_program.py bulk    URL JOBS          prints the seconds it took
    <peer>_program.py paced   URL JOBS          one job per 10 ms, stamped with the time of the enqueue call
    <peer>_program.py offered URL JOBS BEGIN    50 jobs per 10 ms in bulk, stamped with their instant in the timetable
    <peer>_program.py work    URL TALLY WORKER  runs until it is stopped

It runs in the environment of the peer and imports nothing but the standard library and uvloop.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import uvloop
from tally import Tally

JOBS_PER_BULK_CALL = 1000
SECONDS_BETWEEN_PACED_JOBS = 0.01
# The timetable of `offered`, that of bench/offered_client.py.
JOBS_PER_OFFERED_CALL = 50
MICROSECONDS_BETWEEN_OFFERED_CALLS = 10_000
# A payload of about ninety bytes of JSON, like a small real job.
MESSAGE = "a small message, about as long as the arguments of a real job"

Payload = dict[str, Any]
Handle = Callable[[Payload], None]


class Peer(Protocol):
    async def open(self, url: str) -> None: ...
    async def install(self) -> None: ...
    async def enqueue_one(self, payload: Payload) -> None: ...
    async def enqueue_many(self, payloads: list[Payload]) -> None: ...
    async def work(self, handle: Handle) -> None: ...


def ignore(payload: Payload) -> None:
    """Handler of a program that runs no jobs."""


def run(peer: Peer) -> None:
    uvloop.run(_command(peer, *sys.argv[1:]))


async def _command(peer: Peer, command: str, url: str, *arguments: str) -> None:
    await peer.open(url)
    match command:
        case "install":
            await peer.install()
        case "one":
            print(await _seconds_one_by_one(peer, int(arguments[0])))
        case "bulk":
            print(await _seconds_in_bulk(peer, int(arguments[0])))
        case "paced":
            await _enqueue_paced(peer, int(arguments[0]))
        case "offered":
            await _enqueue_offered(peer, int(arguments[0]), int(arguments[1]))
        case "work":
            await peer.work(_counting_handler(Path(arguments[0]), int(arguments[1])))
        case _:
            sys.exit(f"unknown command {command}")


async def _seconds_one_by_one(peer: Peer, jobs: int) -> float:
    started = time.perf_counter()
    for _ in range(jobs):
        await peer.enqueue_one(_payload())
    return time.perf_counter() - started


async def _seconds_in_bulk(peer: Peer, jobs: int) -> float:
    started = time.perf_counter()
    for first in range(0, jobs, JOBS_PER_BULK_CALL):
        await peer.enqueue_many([_payload() for _ in range(min(JOBS_PER_BULK_CALL, jobs - first))])
    return time.perf_counter() - started


async def _enqueue_paced(peer: Peer, jobs: int) -> None:
    started = time.perf_counter()
    for number in range(jobs):
        await asyncio.sleep(max(0.0, started + number * SECONDS_BETWEEN_PACED_JOBS - time.perf_counter()))
        await peer.enqueue_one(_payload(sent=_microseconds()))


async def _enqueue_offered(peer: Peer, jobs: int, begin: int) -> None:
    """Offer jobs from `begin` on, in microseconds; a late call is not left out, and its jobs keep their instants."""
    for call in range(jobs // JOBS_PER_OFFERED_CALL):
        instant = begin + call * MICROSECONDS_BETWEEN_OFFERED_CALLS
        await asyncio.sleep(max(0, instant - _microseconds()) / 1_000_000)
        await peer.enqueue_many([_payload(sent=instant) for _ in range(JOBS_PER_OFFERED_CALL)])


def _counting_handler(path: Path, worker: int) -> Handle:
    tally = Tally(path)
    sampled = 0

    def handle(payload: Payload) -> None:
        nonlocal sampled
        if payload["sent"]:
            tally.add_sample(sampled, _microseconds() - payload["sent"])
            sampled += 1
        tally.count_up(worker)

    return handle


def _payload(sent: int = 0) -> Payload:
    return {"sent": sent, "message": MESSAGE}


def _microseconds() -> int:
    # The monotonic clock is one clock for all processes of a machine, so two readings can be subtracted.
    return time.monotonic_ns() // 1000
