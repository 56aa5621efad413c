"""The tables of README.md and of two pages of docs, written from the recorded figures: `python -m bench readme`.

A test compares them with the files, so that a figure cannot be changed by hand. Rows of benchmarks that are not
recorded are left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor, log10
from pathlib import Path

from bench import ratchet
from bench.peers.catalogue import PEERS, Peer
from bench.peers.schedule_catalogue import SCHEDULE_PEERS
from bench.recorded import Recording
from bench.report import Figure
from bench.scale.tables import assumption_list
from bench.scale.tables import tables as scale_tables

README = Path(__file__).parents[1] / "README.md"
COSTS = README.parent / "docs" / "why" / "costs.md"
SCALE = README.parent / "docs" / "operate" / "scale.md"
JETSTREAM = README.parent / "docs" / "operate" / "jetstream.md"
PAGES = (README, COSTS, SCALE, JETSTREAM)

INTRODUCTION = """\
No-op async jobs. PostgreSQL, the workers, the producer and the benchmark share one machine. Compare figures of one
run: another machine has others. In brackets: the lowest and the highest of several rounds. `python -m bench NAME`
repeats a benchmark, `make bench` all of them in a quick form, `python -m bench peers` those of the other products."""


@dataclass(frozen=True)
class Row:
    """One line of a table: templates, in which `{drain}` is a recorded figure and `{drain.ratio}` its comparison."""

    benchmark: str
    label: str
    value: str
    compared: str = ""


OWN = (
    Row(
        "drain",
        "drain, one process",
        "{drain} jobs/s",
        "{drain.ratio} of a bare claim-and-settle loop without handlers ({ceiling})",
    ),
    Row("drain", "drain, two processes", "{drain_two} jobs/s", "{drain_two.ratio}"),
    Row("drain", "drain, one process, `history=False`", "{drain_forget} jobs/s", "{drain_forget.ratio}"),
    Row("drain", "drain, two processes, `history=False`", "{drain_forget_two} jobs/s", "{drain_forget_two.ratio}"),
    Row(
        "drain",
        "processor time for each job, one process",
        "{drain_cpu} µs",
        "worker {drain_cpu_worker}, PostgreSQL {drain_cpu_server}; the bare loop {ceiling_cpu}",
    ),
    Row(
        "pinned",
        "drain of 400k jobs while another session holds a snapshot",
        "{pinned} jobs/s",
        "{pinned.ratio} of the same drain without",
    ),
    Row("backlog", "drain behind 1M future jobs", "{backlog} jobs/s", "{backlog.ratio} of the same drain without"),
    Row("history", "drain beside 1M finished jobs", "{history} jobs/s", "{history.ratio} of the same drain without"),
    Row("handlers", "sync handlers, in threads", "{handlers_sync} jobs/s", "{handlers_sync.ratio} of async handlers"),
    Row("handlers", "batch handlers", "{handlers_batch} jobs/s", "{handlers_batch.ratio} of async handlers"),
    Row(
        "handlers",
        "isolated handlers, in processes",
        "{handlers_isolated} jobs/s",
        "{handlers_isolated.ratio} of async handlers",
    ),
    Row("limits", "drain, 10,000 keys with one slot each", "{keys} jobs/s", "{keys.ratio} of the same without limits"),
    Row("limits", "drain, 100 keys with 50 slots each", "{keys_50} jobs/s", "{keys_50.ratio} of the same without"),
    Row("limits", "drain, one limit of 50 for all", "{global} jobs/s", "{global.ratio} of the same without"),
    Row("enqueue", "enqueue one at a time", "{enqueue_one} jobs/s", "{enqueue_one.ratio} of a bare INSERT"),
    Row("enqueue", "enqueue in bulk, from a generator", "{enqueue_bulk} jobs/s", "{enqueue_bulk.ratio} of COPY"),
    Row(
        "latency",
        "enqueue to start while 5,000 jobs/s arrive",
        "p50 {latency_loaded_p50}, p99 {latency_loaded_p99} ms",
    ),
    Row("idle", "idle worker", "{idle_queries} queries/s, {idle_cpu} % of a core, {idle_memory} MiB"),
    Row("memory", "memory after 1M jobs", "+ {memory_growth} MiB"),
    Row(
        "schedules",
        "schedules: 1M rows, 1 % due each second",
        "p50 {lateness_p50}, p99 {lateness_p99} ms late",
        "{schedules_cpu} % of a core for the scheduler, {schedules_db_cpu} % for PostgreSQL",
    ),
    Row("schedules", "schedules: backlog of due fires", "{fires} fires/s"),
    Row(
        "schedules",
        "schedules: one tick among 10M rows, compared with 10,000 rows",
        "{tick_growth_10m} times",
        "right after a checkpoint {tick_growth_10m_checkpoint} times",
    ),
    Row("notify", "one event to 1M recipients with conditions", "{fanout} s"),
    Row(
        "notify",
        "deliveries in batches of 100, through a local provider that responds within 0.1 s and has no rate",
        "{dispatch}/s",
    ),
    Row("notify", "receipts fetched and applied", "{receipts}/s"),
    Row(
        "start", "`sereno --help`; `import sereno`", "{start_help}; {start_import} ms", "python alone {start_python} ms"
    ),
    Row(
        "start",
        "worker process: ready; memory",
        "{start_worker} ms; {start_worker_rss} MiB",
        "{start_worker_pss} MiB for the whole process tree, shared memory counted once",
    ),
    Row("workflows", "drain of a group of 200k jobs", "{group} jobs/s", "{group.ratio} of the same without a group"),
    Row(
        "workflows",
        "drain beside 1M jobs that wait for another",
        "{waiting} jobs/s",
        "{waiting.ratio} of the same without",
    ),
    Row("workflows", "from one job of a chain to the next", "{chain_link} ms"),
    Row("workflows", "end of a job to the caller that waits for its result", "p50 {waiters_p50}, p99 {waiters_p99} ms"),
    Row("archive", "history to verified Parquet files, 5M rows", "{rows} rows/s"),
    Row(
        "carrier",
        "queue carried by three NATS servers: drain, one process, `history=False`",
        "{carrier_drain} jobs/s",
        "{carrier_drain.ratio} of the same in PostgreSQL",
    ),
)

# For docs/operate/jetstream.md.
CARRIED = (
    Row("carrier", "direct enqueue in bulk", "{carrier_enqueue} jobs/s", "{carrier_enqueue.ratio}"),
    Row("carrier", "drain, one process, `history=False`", "{carrier_drain} jobs/s", "{carrier_drain.ratio}"),
    Row("carrier", "drain, one process, with history", "{carrier_history} jobs/s", "{carrier_history.ratio}"),
    Row(
        "carrier",
        "processor time of PostgreSQL for a million jobs, from enqueue to outcome, `history=False`",
        "{carrier_cpu_server} s",
        "{carrier_cpu_server.ratio}",
    ),
    Row(
        "carrier",
        "statements of PostgreSQL for 1,000 jobs, `history=False`",
        "{carrier_statements}",
        "{carrier_statements.ratio}",
    ),
    Row(
        "carrier",
        "direct enqueue to start, idle worker, p50",
        "{carrier_latency_p50} ms",
        "{carrier_latency_p50.ratio}",
    ),
    Row("carrier", "the same, p99", "{carrier_latency_p99} ms", "{carrier_latency_p99.ratio}"),
)

# Of sereno and of every peer. The figures of a peer have its name before theirs.
COMPARED = (
    Row("drain", "drain, one process (jobs/s)", "{drain}"),
    Row("drain", "drain, two processes", "{drain_two}"),
    Row("enqueue", "enqueue, one at a time", "{enqueue_one}"),
    Row("enqueue", "enqueue, in bulk", "{enqueue_bulk}"),
    Row("latency", "enqueue to start, idle worker, p50 / p99 (ms)", "{latency_p50} / {latency_p99}"),
    Row("latency", "the same while 5,000 jobs/s arrive", "{latency_loaded_p50} / {latency_loaded_p99}"),
)

SCHEDULE_CELLS = ("{lateness_p50} ms", "{lateness_p99} ms", "{schedules_cpu} %")

# The tables of scale.md, in the order of `bench.scale.tables`, and the list of assumptions.
SCALE_PARTS = ("costs", "volume", "simulated", "checked", "assumptions")

FEATURE_PARTS = ("worker", "server", "enqueue")
FEATURE_LABELS = {
    "no_history": "`history=False`",
    "tenant_and_tags": "a tenant and two tags",
    "unique_key": "a unique key",
    "expires": "`expires_at`",
    "context": "a handler that takes `ctx`",
    "not_sampled": "OpenTelemetry, where nothing is sampled",
    "metered": "OpenTelemetry, where nothing is sampled, with metrics",
    "sampled": "OpenTelemetry, where everything is sampled",
    "log_line": "one log line",
    "progress": "`ctx.progress`, once",
    "step": "`ctx.step`, once",
    "transaction": "`ctx.transaction`",
    "retry": "a failed attempt and its retry",
    "concurrency_key": "a concurrency limit with a key",
    "rate_key": "a rate limit with a key",
    "order_key": "an order key",
    "fair_key": "a fair key",
    "sync": "a sync handler",
    "batch": "a batch handler, 100 jobs for each call",
    "isolated": "an isolated handler",
}


class Shown(str):
    """A figure in a template: its value, and its comparison with the spread."""

    __slots__ = ("ratio",)
    ratio: str

    @classmethod
    def of(cls, figure: Figure) -> "Shown":
        shown = cls(rounded(figure.value))
        shown.ratio = figure.shown_ratio
        return shown


def rounded(value: float) -> str:
    """Format a value with two or three digits: a benchmark is not more exact than that."""
    if value >= 1000:
        return f"{round(value, 2 - floor(log10(value))):,.0f}"
    if value >= 10:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def write(recordings: Mapping[str, Recording]) -> None:
    """Replace the tables of all files."""
    for path in PAGES:
        path.write_text(with_tables(path.read_text(), recordings))


def with_tables(text: str, recordings: Mapping[str, Recording]) -> str:
    """Return the text with every table whose benchmarks are recorded between its two comments."""
    tables = {"bench": _jobs, "bench schedules": _schedules, "bench features": _features, "bench carrier": _carrier}
    tables |= {f"bench scale {part}": partial(_scale, part=part) for part in SCALE_PARTS}
    for name, table in tables.items():
        if f"<!-- {name} -->\n" in text and (content := table(recordings)):
            begin, rest = text.split(f"<!-- {name} -->\n")
            _, end = rest.split(f"<!-- /{name} -->")
            text = f"{begin}<!-- {name} -->\n{content}\n<!-- /{name} -->{end}"
    return text


def _jobs(recordings: Mapping[str, Recording]) -> str:
    rows = []
    for row in OWN:
        cells = _filled((row.value, row.compared), _figures(recordings, row.benchmark))
        if cells:
            rows.append((row.label, *cells))
    if not rows:
        return ""
    parts = [INTRODUCTION, _compared(recordings), _table("lrl", ("sereno alone", "value", "compared"), rows)]
    return "\n\n".join([*(part for part in parts if part), _origin(recordings)])


def _compared(recordings: Mapping[str, Recording]) -> str:
    """Return the table of all products and the list of their configurations; empty if no peer is recorded."""
    theirs = _figures(recordings, "peers")
    if not theirs:
        return ""
    peers = sorted(_first_configurations(), key=lambda peer: -_number(theirs.get(f"{peer.name}_drain", "0")))
    rows = []
    for row in COMPARED:
        figures = _figures(recordings, row.benchmark) | theirs
        values = [row.value, *(_of_peer(row.value, peer) for peer in peers)]
        cells = [(_filled((value,), figures) or ("",))[0] for value in values]
        if cells[0]:
            rows.append((row.label, *_best_bold(cells, lowest=row.benchmark == "latency")))
    configurations = [("sereno", "20 jobs at a time, the default; stores the history of every job")]
    configurations += [(f"{peer.title} {peer.version}", peer.described) for peer in peers]
    return "\n\n".join(
        [
            _table("l" + "r" * (len(peers) + 1), ("", "sereno", *(peer.title for peer in peers)), rows),
            _table("ll", ("product", "configuration"), configurations),
        ]
    )


def _first_configurations() -> list[Peer]:
    """Return the peers of the table: the first configuration of each."""
    return list({peer.program: peer for peer in reversed(PEERS)}.values())


def _of_peer(template: str, peer: Peer) -> str:
    """Return the template for a peer's figures; a configuration without enqueue has that of its package."""
    name = peer.name if peer.measure_enqueue or "{enqueue" not in template else peer.program
    return template.replace("{", f"{{{name}_")


def _schedules(recordings: Mapping[str, Recording]) -> str:
    ours, theirs = _figures(recordings, "schedules"), _figures(recordings, "schedule_peers")
    own = _filled(SCHEDULE_CELLS, ours)
    if not own or not theirs:
        return ""
    # Every due schedule of sereno has fired, otherwise the benchmark fails.
    rows = [("**sereno**", "1,000,000", "10,000", "10,000", *own)]
    for peer in SCHEDULE_PEERS:
        cells = _filled([cell.replace("{", f"{{{peer.name}_") for cell in ("{fires}", *SCHEDULE_CELLS)], theirs)
        due = rounded(peer.schedules / peer.seconds)
        if cells:
            rows.append((f"{peer.peer.title} {peer.peer.version}", f"{peer.schedules:,}", due, *cells))
    heads = ("", "schedules", "due each second", "fired each second", "late, p50", "late, p99", "CPU of its process")
    recorded = {name: recordings[name] for name in ("schedules", "schedule_peers")}
    return "\n\n".join([_table("lrrrrrr", heads, rows), _origin(recorded)])


def _features(recordings: Mapping[str, Recording]) -> str:
    recording = recordings.get("features")
    if recording is None:
        return ""
    costs: dict[str, dict[str, float]] = {}
    for figure in recording.figures:
        feature, _, part = figure.name.removeprefix("feature_").rpartition("_")
        costs.setdefault(feature, {})[part] = figure.value
    plain = costs.pop("plain")
    rows = [("a plain job", *(f"{plain[part]:.0f}" for part in FEATURE_PARTS))]
    rows += [
        (FEATURE_LABELS.get(feature, feature.replace("_", " ")), *(f"{cost[part]:+.0f}" for part in FEATURE_PARTS))
        for feature, cost in costs.items()
    ]
    heads = ("µs for each job", "worker", "PostgreSQL, from claim to settlement", "enqueue")
    return "\n\n".join([_table("lrrr", heads, rows), _origin({"features": recording})])


def _scale(recordings: Mapping[str, Recording], part: str) -> str:
    recording = recordings.get("scale")
    if recording is None:
        return ""
    shown = [each for name in ("drain", "scale") if name in recordings for each in recordings[name].figures]
    figures = {figure.name: figure.value for figure in shown}
    if part == "assumptions":
        return assumption_list(figures)
    table = scale_tables(figures)[SCALE_PARTS.index(part)]
    text = _table(table.alignment, table.heads, table.rows)
    return text if part != "checked" else f"{text}\n\n{_origin({'scale': recording})}"


def _carrier(recordings: Mapping[str, Recording]) -> str:
    recording = recordings.get("carrier")
    if recording is None:
        return ""
    figures = _figures(recordings, "carrier")
    rows = [(row.label, *_filled((row.value, row.compared), figures)) for row in CARRIED]
    heads = ("carried by three servers, three replicas", "value", "compared with PostgreSQL")
    return "\n\n".join([_table("lrr", heads, rows), _origin({"carrier": recording})])


def _origin(recordings: Mapping[str, Recording]) -> str:
    """Return when, on what and of which commit the benchmarks were recorded."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for name, recording in sorted(recordings.items()):
        # No table shows the short run.
        if name == ratchet.NAME:
            continue
        names.setdefault((recording.date, recording.commit, recording.environment), []).append(name)
    lines = [
        f"- {', '.join(benchmarks)}: {date}, commit {commit}; {environment}"
        for (date, commit, environment), benchmarks in sorted(names.items(), reverse=True)
    ]
    return "\n".join(["Recorded:", *lines])


def _figures(recordings: Mapping[str, Recording], benchmark: str) -> dict[str, Shown]:
    """Return the figures of a benchmark by name; none if it is not recorded."""
    recording = recordings.get(benchmark)
    return {figure.name: Shown.of(figure) for figure in recording.figures} if recording else {}


def _filled(templates: Sequence[str], figures: Mapping[str, Shown]) -> tuple[str, ...]:
    """Return the templates with their figures; nothing if a figure is not recorded."""
    try:
        return tuple(template.format_map(figures) for template in templates)
    except KeyError:
        return ()


def _best_bold(cells: Sequence[str], *, lowest: bool) -> list[str]:
    numbers = [_number(cell) for cell in cells if cell]
    best = min(numbers) if lowest else max(numbers)
    return [f"**{cell}**" if cell and _number(cell) == best else cell for cell in cells]


def _number(cell: str) -> float:
    """Return the first number of a cell."""
    return float(cell.split(maxsplit=1)[0].replace(",", ""))


def _table(alignment: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return Markdown; `alignment` has one letter for each column: l for left, r for right."""
    marks = ["--:" if letter == "r" else "---" for letter in alignment]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in (heads, marks, *rows))
