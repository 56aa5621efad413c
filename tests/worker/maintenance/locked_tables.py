"""Runs all pages of all steps of duties at once, as a worker or a scheduler does over time."""

from collections.abc import Iterable

from sereno.database.connect import ServiceConnection
from sereno.worker.maintenance.duties import MaintenanceDuty


async def do_all(connection: ServiceConnection, duties: Iterable[MaintenanceDuty]) -> None:
    for duty in duties:
        for step in duty.steps:
            while await step.page(connection):
                pass
