"""Every step that the program takes, from the clock to the archive, in order. Whoever adds one adds a line here.

At each of them somebody is killed, in `test_found_kill.py`, `test_told_kill.py` and `test_archive_kill.py`. A step is a
row that is being written, in a transaction that is still open, or a partner that has read a request and has not
answered it.
"""

from dataclasses import dataclass
from typing import Literal

# host                  everything at once: its leases have to run out
# worker                the process that runs the jobs: its supervisor brings them back, and starts another one
# process of its own    where a job runs alone that died with a worker before
# supervisor            and with it the scheduler, which is a part of it: its worker ends what it has begun
Victim = Literal["host", "worker", "process of its own", "supervisor"]
Partner = Literal["page", "api", "expo", "store"]


@dataclass(frozen=True)
class Write:
    """A row of this table. `when`: which one, if not every one."""

    table: str
    what: Literal["insert", "update", "delete", "insert or update"]
    when: str = "true"


@dataclass(frozen=True)
class Call:
    """A request to this partner. `asks`: its method and its path, as a regular expression."""

    partner: Partner
    asks: str


@dataclass(frozen=True)
class Step:
    """`dies`: who is killed there, each in another life. `waits`: it comes when so much time has passed, in turn."""

    name: str
    at: Write | Call
    dies: tuple[Victim, ...]
    waits: tuple[str, ...] = ()


DELIVERIES, FILES, BATCHES = "{sereno}.deliveries", "{sereno}.archive_files", "{sereno}.archive_batches"
OUR_FILE, OUR_BATCH = "new.kind = 'tenders.tenders'", "new.source = 'tenders.tenders'"
FOLDER = "/.*/tenders.tenders/.*"

TO_THE_EVENT = (
    Step("the cycle is fired", Write("{sereno}.fires", "insert"), ("host",), ("2m",)),
    Step("the page is read", Call("page", "GET /"), ("worker",)),
    Step("the list is read", Call("api", "GET .*fecha="), ("process of its own",)),
    # Whose process of its own has died waits a little.
    Step("the code is claimed", Write("tenders.registry", "insert"), ("worker",), ("10s",)),
    Step("the tender is written", Write("tenders.tenders", "insert"), ("worker",)),
    Step("its job is written", Write("{sereno}.jobs", "insert", "new.task = 'tenders.announce'"), ("worker",)),
    Step("the lists are ticked off", Write("tenders.progress", "insert or update"), ("host",)),
    Step("the details are read", Call("api", "GET .*codigo="), ("worker",)),
    Step("the details are written", Write("tenders.tenders", "update", "not new.notified"), ("process of its own",)),
    Step("the event is written", Write("{sereno}.events", "insert"), ("worker",), ("20s",)),
)
TO_THE_FLAG = (
    Step("the installations are matched", Write(DELIVERIES, "insert"), ("worker",)),
    Step("the push is about to leave", Write(DELIVERIES, "update", "new.state = 'sending'"), ("worker",)),
    Step("Expo has the push", Call("expo", "POST .*/push/send"), ("host",)),
    Step("the ticket is written", Write(DELIVERIES, "update", "new.state = 'sent'"), ("worker",)),
    Step("Expo is asked for the receipts", Call("expo", "POST .*/push/getReceipts"), ("worker",), ("16m",)),
    Step("the receipts are written", Write(DELIVERIES, "update", "new.state = 'delivered'"), ("worker",), ("16m",)),
    Step(
        "the tender is notified",
        Write("tenders.tenders", "update", "new.notified"),
        ("worker", "supervisor"),
        ("16m", "1m"),
    ),
)
TO_THE_ARCHIVE = (
    Step("the deliveries leave", Write(DELIVERIES, "delete"), ("worker",), ("91d",)),
    Step("the tender leaves", Write("tenders.tenders", "delete"), ("worker",), ("275d",)),
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
    Step("the file is looked at for the last time", Call("store", f"HEAD {FOLDER}[.]parquet$"), ("worker",), ("8d",)),
    Step(
        "the batch is dropped",
        Write(BATCHES, "update", f"{OUR_BATCH} and new.dropped_at is not null"),
        ("host", "supervisor"),
    ),
)
STEPS = (*TO_THE_EVENT, *TO_THE_FLAG, *TO_THE_ARCHIVE)
