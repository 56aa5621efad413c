"""Runs all pages of all steps of duties at once, as a worker or a scheduler does over time."""

from collections.abc import Iterable

from sereno.database.connect import Line
from sereno.worker.maintenance.duties import Duty


async def do_all(line: Line, duties: Iterable[Duty]) -> None:
    for duty in duties:
        for step in duty.steps:
            while await step.page(line):
                pass
