"""The jobs of the archive: the names of their tasks, and what a person can order.

Every process that declares tasks imports this module, so it imports nothing that is slow to load.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

MOVE = "sereno.archive_move"
EXPORT = "sereno.archive_export"
VERIFY = "sereno.archive_verify"
RESTORE = "sereno.archive_restore"
EXTRACT = "sereno.archive_extract"
# Characters of the name of a table; a longer kind is cut in the name of an extract.
LONGEST_NAME = 200

Form: TypeAlias = Literal["parquet", "csv", "jsonl"]
JobKind: TypeAlias = Literal["move", "export", "verify", "restore", "extract"]
JOB_KINDS: Mapping[str, JobKind] = {
    MOVE: "move",
    EXPORT: "export",
    VERIFY: "verify",
    RESTORE: "restore",
    EXTRACT: "extract",
}


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A table of the user's: rows whose time column is older than `age` seconds are archived."""

    name: str
    moment: str
    age: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOrder:
    """Verify files again: all, those of a batch, those verified since a moment, or a random sample."""

    requested_by: str
    batch: int | None = None
    sample: int | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOrder:
    """Restore rows for `keep` seconds. `yes`: even if they are many; `dry_run`: only count them."""

    requested_by: str
    kind: str
    keep: float
    ids: list[str] | None = None
    from_at: datetime | None = None
    to_at: datetime | None = None
    without: tuple[str, ...] = ()
    dry_run: bool = False
    yes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractOrder:
    """Extract archived rows of a time span to one file."""

    requested_by: str
    kind: str
    form: Form
    from_at: datetime | None = None
    to_at: datetime | None = None


Order: TypeAlias = VerifyOrder | RestoreOrder | ExtractOrder
TASKS: Mapping[type[Order], str] = {VerifyOrder: VERIFY, RestoreOrder: RESTORE, ExtractOrder: EXTRACT}
