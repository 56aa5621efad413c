"""The context of a benchmark: the server, the report, and the size of the run."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.report import Report
from bench.server import Server
from bench.tally import Tally


@dataclass(frozen=True)
class BenchContext:
    server: Server
    report: Report
    quick: bool
    # For `enqueue`: number of client processes. 0 measures one process and compares it with bare statements.
    clients: int = 0

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @contextmanager
    def tally(self, samples: int = 0) -> Iterator[Tally]:
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            yield Tally.create(Path(directory) / "tally", samples)
