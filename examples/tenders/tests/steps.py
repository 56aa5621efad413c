"""Every step of the program, from the schedule to the archive, in order. A new step in the program needs a line here.

A process is killed at each of them in `test_found_kill.py`, `test_notified_kill.py` and `test_archive_kill.py`. A step
is a row that is being written in an open transaction, or a request that a partner has read and not yet responded to.
"""

from dataclasses import dataclass
from typing import Literal

# host                all processes at once: their leases have to expire
# worker              the process that runs jobs: its supervisor releases them and starts another worker
# isolated process    runs a single job after a worker crashed with it
# supervisor          runs the scheduler as well; its worker finishes the jobs it has started
Victim = Literal["host", "worker", "isolated process", "supervisor"]
Partner = Literal["page", "api", "expo", "store"]


@dataclass(frozen=True)
class Write:
    """A row of this table. `when`: an SQL condition that selects the rows."""

    table: str
    what: Literal["insert", "update", "delete", "insert or update"]
    when: str = "true"


@dataclass(frozen=True)
class Call:
    """A request to this partner. `request`: a regular expression for method and path."""

    partner: Partner
    request: str


@dataclass(frozen=True)
class Step:
    """`dies`: what is killed there, one per run. `waits`: how far the clock is moved, in turn, to reach the step."""

    name: str
    at: Write | Call
    dies: tuple[Victim, ...]
    waits: tuple[str, ...] = ()


DELIVERIES, FILES, BATCHES = "{sereno}.deliveries", "{sereno}.archive_files", "{sereno}.archive_batches"
OUR_FILE, OUR_BATCH = "new.kind = 'tenders.tenders'", "new.source = 'tenders.tenders'"
FOLDER = "/.*/tenders.tenders/.*"

TO_THE_EVENT = (
    Step("the cycle is fired", Write("{sereno}.fires", "insert"), ("host",), ("2m",)),
    Step("the page is read", Call("page", "POST /BuscarLicitacion/Home/Buscar"), ("worker",)),
    Step("the list is read", Call("api", "GET .*fecha="), ("isolated process",)),
    # A job whose isolated process was killed is retried with a delay.
    Step("the code is claimed", Write("tenders.registry", "insert"), ("worker",), ("10s",)),
    Step("the tender is written", Write("tenders.tenders", "insert"), ("worker",)),
    Step("its job is written", Write("{sereno}.jobs", "insert", "new.task = 'tenders.announce'"), ("worker",)),
    Step("the lists are marked as read", Write("tenders.progress", "insert or update"), ("host",)),
    Step("the details are read", Call("api", "GET .*codigo="), ("worker",)),
    Step("the details are written", Write("tenders.tenders", "update", "not new.notified"), ("isolated process",)),
    Step("the event is written", Write("{sereno}.events", "insert"), ("worker",), ("20s",)),
)
TO_THE_FLAG = (
    Step("the installations are matched", Write(DELIVERIES, "insert"), ("worker",)),
    Step("the push is about to be sent", Write(DELIVERIES, "update", "new.state = 'sending'"), ("worker",)),
    Step("Expo has the push", Call("expo", "POST .*/push/send"), ("host",)),
    Step("the ticket is written", Write(DELIVERIES, "update", "new.state = 'sent'"), ("worker",)),
    Step("the receipts are requested", Call("expo", "POST .*/push/getReceipts"), ("worker",), ("16m",)),
    Step("the receipts are written", Write(DELIVERIES, "update", "new.state = 'delivered'"), ("worker",), ("16m",)),
    Step(
        "the tender is notified",
        Write("tenders.tenders", "update", "new.notified"),
        ("worker", "supervisor"),
        ("16m", "1m"),
    ),
)
TO_THE_ARCHIVE = (
    Step("the deliveries are moved", Write(DELIVERIES, "delete"), ("worker",), ("91d",)),
    Step("the tender is moved", Write("tenders.tenders", "delete"), ("worker",), ("275d",)),
    Step("its file is planned", Write(FILES, "insert", OUR_FILE), ("worker",), ("1d",)),
    Step("the file is uploaded", Call("store", f"PUT {FOLDER}[.]parquet$"), ("host",)),
    Step("the upload is noted", Write(FILES, "update", f"{OUR_FILE} and new.uploaded_at is not null"), ("worker",)),
    Step("the file is read back", Call("store", f"GET {FOLDER}[.]parquet$"), ("worker",)),
    Step("the file is described", Call("store", f"PUT {FOLDER}[.]json$"), ("worker",)),
    Step("the description is read back", Call("store", f"GET {FOLDER}[.]json$"), ("worker",)),
    Step("the file is verified", Write(FILES, "update", f"{OUR_FILE} and new.verified_at is not null"), ("worker",)),
    Step(
        "the batch is verified", Write(BATCHES, "update", f"{OUR_BATCH} and new.verified_at is not null"), ("worker",)
    ),
    Step("the file is checked for the last time", Call("store", f"HEAD {FOLDER}[.]parquet$"), ("worker",), ("8d",)),
    Step(
        "the batch is dropped",
        Write(BATCHES, "update", f"{OUR_BATCH} and new.dropped_at is not null"),
        ("host", "supervisor"),
    ),
)
STEPS = (*TO_THE_EVENT, *TO_THE_FLAG, *TO_THE_ARCHIVE)
