"""`sereno why JOB`."""

from typing import TYPE_CHECKING

import click

from sereno.cli.options import desk_options, output_option
from sereno.cli.output import show_record

if TYPE_CHECKING:
    from sereno.cli.desk import Desk


@click.command(epilog="Example: sereno why 4711")
@click.argument("job_id", type=int, metavar="JOB")
@output_option
@desk_options
def why(desk: "Desk", job_id: int, form: str) -> None:
    """Why a job is not running, in plain words."""
    from sereno.operations.why import why as operation  # noqa: PLC0415 - slow to import; --help needs none

    sentences = desk.run(operation(job_id))
    show_record(form, {"id": job_id, "why": sentences}, lambda: sentences)
