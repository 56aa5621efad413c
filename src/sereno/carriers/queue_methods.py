"""The part of `Sereno` that declares queues, with limits or with a carrier, and enqueues many jobs at once."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sereno.carriers.address import JetStream, carried_queue
from sereno.carriers.contract import Carrier
from sereno.carriers.publisher import Publisher
from sereno.database.database import Database
from sereno.errors import ConfigurationError
from sereno.jobs.carried import CarriedQueue
from sereno.jobs.enqueue import aenqueue, enqueue
from sereno.jobs.enqueue_stream import aenqueue_stream, enqueue_stream
from sereno.jobs.handle import Job
from sereno.jobs.job import EnqueuedJob, NewJob, check_queue_name
from sereno.jobs.limits.limit import Limits
from sereno.jobs.task import Registry, define_queue
from sereno.settings import Settings


class QueueMethods:
    """Declares queues, and enqueues many jobs at once."""

    database: Database
    registry: Registry
    settings: Settings
    publisher: Publisher

    def queue(
        self,
        name: str,
        *,
        concurrency: Limits = None,
        rate: Limits = None,
        fair_key: str | None = None,
        carrier: Carrier | None = None,
        direct: bool = False,
    ) -> None:
        """Set limits for all jobs of a queue: `app.queue("reconcile", concurrency=Limit(10), fair_key="{tenant}")`.

        carrier=JetStream("nats://a:4222", replicas=3): transport its jobs by NATS JetStream; then it has no limits. The
        setting `carriers` takes precedence. direct: publish its jobs without storing them in PostgreSQL.
        """
        if direct and carrier is None and name not in self.registry.carriable:
            raise ConfigurationError(f"queue {name}: direct needs a carrier")
        self.registry.add_queue(define_queue(name, concurrency=concurrency, rate=rate, fair_key=fair_key))
        if carrier is not None and not isinstance(carrier, JetStream):
            raise ConfigurationError(f"queue {name}: its carrier is a JetStream(…), not {carrier!r:.60}")
        by_setting = self.registry.carriable.get(name)
        if by_setting is not None:
            self.registry.carry(replace(by_setting, direct=direct or by_setting.direct))
        elif carrier is not None:
            self.registry.carry(CarriedQueue(name, carrier, direct))

    def enqueue_many(self, jobs: Iterable[NewJob], connection: Any = None) -> list[Job[Any]]:
        """Enqueue any number of jobs, all or none. A list takes one statement; a generator is streamed.

        Jobs that are published directly (see `queue`) are accepted one message at a time.
        """
        if self.registry.carried:
            return self._handles(self._enqueue_carried(list(jobs), connection))
        if isinstance(jobs, Sequence) or connection is not None:
            return self._handles(enqueue(self.database, list(jobs), connection))
        return self._handles(enqueue_stream(self.database, jobs))

    async def aenqueue_many(self, jobs: Iterable[NewJob], connection: Any = None) -> list[Job[Any]]:
        """`enqueue_many` for async code."""
        if self.registry.carried:
            return self._handles(await self._aenqueue_carried(list(jobs), connection))
        if isinstance(jobs, Sequence) or connection is not None:
            return self._handles(await aenqueue(self.database, list(jobs), connection))
        return self._handles(await aenqueue_stream(self.database, jobs))

    def _handles(self, jobs: Iterable[EnqueuedJob]) -> list[Job[Any]]:
        return [Job(self.database, job, self.registry.result_type(job.task)) for job in jobs]

    def _carry_by_settings(self) -> None:
        for name, url in (self.settings.carriers or {}).items():
            self.registry.carry(carried_queue(check_queue_name(name), url))

    def _enqueue_carried(self, jobs: Sequence[NewJob], connection: Any) -> list[EnqueuedJob]:
        direct = self._direct(jobs, connection)
        if len(direct) == len(jobs):
            return self.publisher.publish(jobs)
        stored = iter(enqueue(self.database, self._others(jobs, direct), connection))
        published = iter(self.publisher.publish([jobs[index] for index in sorted(direct)]) if direct else ())
        return [next(published if index in direct else stored) for index in range(len(jobs))]

    async def _aenqueue_carried(self, jobs: Sequence[NewJob], connection: Any) -> list[EnqueuedJob]:
        direct = self._direct(jobs, connection)
        if len(direct) == len(jobs):
            return await self.publisher.apublish(jobs)
        stored = iter(await aenqueue(self.database, self._others(jobs, direct), connection))
        published = iter(await self.publisher.apublish([jobs[index] for index in sorted(direct)]) if direct else ())
        return [next(published if index in direct else stored) for index in range(len(jobs))]

    def _direct(self, jobs: Sequence[NewJob], connection: Any) -> set[int]:
        return {index for index, job in enumerate(jobs) if self.registry.direct(job, connection) is not None}

    @staticmethod
    def _others(jobs: Sequence[NewJob], direct: set[int]) -> list[NewJob]:
        return [job for index, job in enumerate(jobs) if index not in direct]
