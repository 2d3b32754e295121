"""The measurements as JSON, tables and plots, and the verdict on every target."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import league_report, machine
from benchmarks.contenders import BARE, FASTMCP, OURS, PUBLIC, PYTHONS, clean_environment
from benchmarks.import_cost import our_version, write_section
from benchmarks.measure import Plan, Row
from benchmarks.plots import draw_bars, draw_lines

__all__ = ["RESULTS", "commit", "one_line", "store", "write"]

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"

Rows = list[Row]

# ------------------------------------------------------------------ stored results

PACKAGES = ("openenv", "uvicorn", "websockets", "uvloop", "httptools", "pydantic", "starlette")
BARE_PACKAGES = ("picows", "msgspec", "uvloop")
VERSIONS = """
import importlib.metadata as metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def store(folder: Path, part: str, plan: Plan, rows: Rows) -> None:
    """Write every row of a part, with the machine, versions and plan."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "part": part,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.describe(),
        "versions": {
            OURS: _versions(OURS, PACKAGES) | {"openenv": our_version(), "commit": commit()},
            PUBLIC: _versions(PUBLIC, PACKAGES),
            BARE: _versions(BARE, BARE_PACKAGES),
            FASTMCP: _versions(FASTMCP, ("fastmcp", "mcp")),
        },
        "plan": asdict(plan),
        "rows": rows,
    }
    (folder / f"{part}.json").write_text(f"{json.dumps(content, indent=1)}\n", encoding="utf-8")


def _versions(whose: str, packages: Iterable[str]) -> dict[str, str]:
    command = [str(PYTHONS[whose]), "-c", VERSIONS, *packages]
    environment = clean_environment(whose)
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(output.stdout)
    return found


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, cwd=HERE, check=False, capture_output=True, text=True)
    return done.stdout.strip()


# ------------------------------------------------------------------ figures

Metric = Callable[[Row], float]


def _cpu_us(row: Row) -> float:
    return float(row["server_cpu_s"] / row["steps"] * 1e6)


def _opening_cpu_us(row: Row) -> float:
    return float((row["handshake_cpu_s"] + row["reset_cpu_s"]) / row["sessions"] * 1e6)


def _failures(row: Row) -> int:
    errors: dict[str, Any] = row["errors"]
    closed: dict[str, int] = errors["closed"]
    return sum(closed.values()) + sum(v for v in errors.values() if isinstance(v, int))


def _succeeded(row: Row) -> float:
    """Return the share of sessions that opened, reset and got an answer to each step."""
    return float((row["finished"] - _failures(row)) / row["sessions"])


METRICS: dict[str, Metric] = {
    "steps_per_s": lambda row: float(row["steps_per_s"]),
    "episodes_per_s": lambda row: float(row["episodes_per_s"]),
    "server_cpu_us": _cpu_us,
    "p50_us": lambda row: float(row["latency_us"]["p50"]),
    "p90_us": lambda row: float(row["latency_us"]["p90"]),
    "p99_us": lambda row: float(row["latency_us"]["p99"]),
    "p99.9_us": lambda row: float(row["latency_us"]["p99.9"]),
    "max_us": lambda row: float(row["latency_us"]["max"]),
    "open_rate": lambda row: float(row["open_rate"]),
    "handshake_s": lambda row: float(row["handshake_s"]),
    "reset_s": lambda row: float(row["reset_s"]),
    "opening_cpu_us": _opening_cpu_us,
    "rss_kib": lambda row: float(row["rss_a_session"]) / 1024,
    "pss_kib": lambda row: float(row["pss_a_session"]) / 1024,
    "base_mib": lambda row: float(row["rss_before"]) / 2**20,
    "answer_bytes": lambda row: float(row["answer_bytes"]),
    "succeeded": _succeeded,
    "failures": lambda row: float(_failures(row)),
    "seconds": lambda row: float(row["seconds"]),
    "cpu_us": lambda row: float(row["cpu_us"]),
    "wall_us": lambda row: float(row["wall_us"]),
}


def values(rows: Rows, contender: str, sessions: int, metric: str) -> dict[int, float]:
    """Return the figure of every round that has one."""
    found = {}
    for row in rows:
        if (row["contender"], row["sessions"]) == (contender, sessions):
            try:
                found[row["round"]] = METRICS[metric](row)
            except (ZeroDivisionError, TypeError):
                continue  # no answers, or the server has ended
    return found


def ratios(rows: Rows, a: str, b: str, sessions: int, metric: str) -> list[float]:
    """Return the figure of `a` divided by that of `b`, for each round."""
    over, under = values(rows, a, sessions, metric), values(rows, b, sessions, metric)
    return [over[number] / under[number] for number in over if under.get(number)]


# ------------------------------------------------------------------ tables


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _median(found: Iterable[float]) -> str:
    several = list(found)
    return _number(statistics.median(several)) if several else "-"


def _spread(found: Iterable[float]) -> str:
    several = list(found)
    if len(several) < 2:
        return _median(several)
    return f"{_median(several)} ({_number(min(several))} to {_number(max(several))})"


def _times(value: float) -> str:
    return f"{value:.1f}x" if value >= 1 else f"1/{1 / value:.1f}"


def _median_times(found: Sequence[float]) -> str:
    return _times(statistics.median(found)) if found else "-"


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]], words: int = 1) -> str:
    """Return a table whose first `words` columns are text, and whose others are figures."""
    rule = ["---"] * words + ["---:"] * (len(heads) - words)
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rule, *lines))


def _points(rows: Rows) -> Iterator[tuple[int, str]]:
    """Yield every number of sessions and contender, ordered by number of sessions."""
    seen = dict.fromkeys((row["sessions"], row["contender"]) for row in rows)
    yield from sorted(seen, key=lambda point: point[0])


def _whole_number(found: Iterable[float]) -> str:
    return f"{sum(found):.0f}"


def _milliseconds(found: Iterable[float]) -> str:
    return _median(value / 1e3 for value in found)


@dataclass(frozen=True)
class Column:
    """A figure in a table, or, with `against`, its ratio to that contender's."""

    head: str
    metric: str
    form: Callable[[Iterable[float]], str] = _median
    against: str | None = None

    def cell(self, rows: Rows, contender: str, sessions: int) -> str:
        if self.against is None:
            return self.form(values(rows, contender, sessions, self.metric).values())
        return _median_times(ratios(rows, contender, self.against, sessions, self.metric))


FAILURES = Column("failures", "failures", _whole_number)

COLUMNS: dict[str, tuple[Column, ...]] = {
    "steps": (
        Column("steps/s", "steps_per_s", _spread),
        Column("of public sync", "steps_per_s", against="public sync"),
        Column("server CPU a step, µs", "server_cpu_us"),
        Column("of bare", "server_cpu_us", against="bare"),
        Column("p50 ms", "p50_us", _milliseconds),
        Column("p90 ms", "p90_us", _milliseconds),
        Column("p99 ms", "p99_us", _milliseconds),
        Column("p99.9 ms", "p99.9_us", _milliseconds),
        Column("max ms", "max_us", _milliseconds),
        FAILURES,
    ),
    "round_trip": (
        Column("p50 µs", "p50_us", _spread),
        Column("of bare", "p50_us", against="bare"),
        Column("of public sync", "p50_us", against="public sync"),
        Column("p99 µs", "p99_us"),
        FAILURES,
    ),
    "open": (
        Column("opened/s", "open_rate", _spread),
        Column("of public sync", "open_rate", against="public sync"),
        Column("handshakes s", "handshake_s"),
        Column("resets s", "reset_s"),
        Column("server CPU an opening, µs", "opening_cpu_us"),
        FAILURES,
    ),
    "memory": (
        Column("RSS a session, KiB", "rss_kib", _spread),
        Column("of public sync", "rss_kib", against="public sync"),
        Column("PSS a session, KiB", "pss_kib"),
        Column("RSS before, MiB", "base_mib"),
        FAILURES,
    ),
    "scale": (
        Column("succeeded", "succeeded"),
        Column("opened/s", "open_rate"),
        Column("steps/s", "steps_per_s"),
        Column("RSS a session, KiB", "rss_kib"),
        Column("PSS a session, KiB", "pss_kib"),
        FAILURES,
    ),
    "frames": (
        Column("frames/s", "steps_per_s", _spread),
        Column("of public frames", "steps_per_s", against="public frames"),
        Column("server CPU a frame, µs", "server_cpu_us"),
        Column("bytes a frame", "answer_bytes"),
        Column("p50 µs", "p50_us"),
        FAILURES,
    ),
    "start": (
        Column("s to /health", "seconds", _spread),
        Column("of public sync", "seconds", against="public sync"),
    ),
    "client": (
        Column("CPU a step, µs", "cpu_us", _spread),
        Column("of public await", "cpu_us", against="public await"),
        Column("of public sync()", "cpu_us", against="public sync()"),
        Column("wall a step, µs", "wall_us"),
    ),
    "mcp": (
        Column("requests/s", "steps_per_s", _spread),
        Column("server CPU a request, µs", "server_cpu_us"),
        Column("p50 ms", "p50_us", _milliseconds),
        Column("p99 ms", "p99_us", _milliseconds),
        FAILURES,
    ),
    "mcp_memory": (
        Column("RSS a session, KiB", "rss_kib", _spread),
        Column("PSS a session, KiB", "pss_kib"),
        Column("RSS before, MiB", "base_mib"),
    ),
    **dict.fromkeys(
        ("atari_rgb", "atari_grayscale", "atari_every_frame"),
        (
            Column("frames/s", "steps_per_s", _spread),
            Column("of public", "steps_per_s", against="public clients of atari"),
            Column("of bare ALE", "steps_per_s", against="bare ALE"),
            Column("client CPU a frame, µs", "cpu_us"),
            Column("server CPU a frame, µs", "server_cpu_us"),
        ),
    ),
    "vector": (
        Column("steps/s", "steps_per_s", _spread),
        Column("of public clients", "steps_per_s", against="public clients"),
        Column("client CPU a step, µs", "cpu_us"),
    ),
    **dict.fromkeys(
        ("cold", "churn", "kept"),
        (
            Column("episodes/s", "episodes_per_s", _spread),
            Column("of public, sync", "episodes_per_s", against="public clients, sync"),
            Column("of public, async", "episodes_per_s", against="public clients, async"),
            Column("client CPU a step, µs", "cpu_us"),
            Column("server CPU a step, µs", "server_cpu_us"),
        ),
    ),
}


def _part_table(part: str, rows: Rows) -> str:
    columns = COLUMNS[part]
    counted = any(row["sessions"] for row in rows)
    lines = []
    for sessions, name in _points(rows):
        cells = [column.cell(rows, name, sessions) for column in columns]
        lines.append([f"{sessions:,}", name, *cells] if counted else [name, *cells])
    heads = ["who", *(column.head for column in columns)]
    return _table(["sessions", *heads] if counted else heads, lines, words=1 + counted)


def one_line(part: str, row: Row) -> str:
    """Return a row as a progress line."""
    words = [f"{row['contender']:<15}", f"{row['sessions'] or '':>5}"]
    words += [
        f"{column.head} {column.cell([row], row['contender'], row['sessions'])}"
        for column in COLUMNS[part]
        if column.against is None
    ]
    return "  ".join([*words, row.get("errors", {}).get("sample", "")])


# ------------------------------------------------------------------ targets


@dataclass(frozen=True)
class Target:
    """A limit of one of our figures: its ratio to another contender's, or the figure itself."""

    what: str
    part: str
    sessions: int
    metric: str
    contender: str
    against: str | None
    limit: float
    at_least: bool = False

    def measured(self, parts: dict[str, Rows]) -> float | None:
        rows = parts.get(self.part, [])
        if self.against is None:
            found = list(values(rows, self.contender, self.sessions, self.metric).values())
        else:
            found = ratios(rows, self.contender, self.against, self.sessions, self.metric)
        return statistics.median(found) if found else None

    def is_met(self, measured: float) -> bool:
        return measured >= self.limit if self.at_least else measured <= self.limit

    def shown(self, value: float) -> str:
        return _number(value) if self.against is None else _times(value)


TARGETS = (
    Target("steps/s, 256 sessions, of public", "steps", 256, "steps_per_s",
           "ours sync", "public sync", 8, at_least=True),
    Target("steps/s, 4,096 sessions, of public", "steps", 4096, "steps_per_s",
           "ours sync", "public sync", 12, at_least=True),
    Target("p99, 4,096 sessions, of public", "steps", 4096, "p99_us",
           "ours sync", "public sync", 1 / 8),
    Target("server CPU a step, 256 sessions, of bare", "steps", 256, "server_cpu_us",
           "ours sync", "bare", 2.5),
    Target("one session's p50, of bare, NEVER_BLOCKS", "round_trip", 1, "p50_us",
           "ours never blocks", "bare", 1.4),
    Target("one session's p50, of bare, on a thread", "round_trip", 1, "p50_us",
           "ours sync", "bare", 1.4),
    Target("frames/s, version 1, of public", "frames", 16, "steps_per_s",
           "ours v1 frames", "public frames", 40, at_least=True),
    Target("VectorEnv of 256, version 1, of 256 public clients", "vector", 256, "steps_per_s",
           "ours VectorEnv", "public clients", 25, at_least=True),
    Target("VectorEnv's send and recv, of 256 public clients", "vector", 256, "steps_per_s",
           "ours send and recv", "public clients", 25, at_least=True),
    Target("EnvClients of one process, 256, warm, of public", "vector", 256, "steps_per_s",
           "ours clients", "public clients", 10, at_least=True),
    Target("EnvClients of one process, 256, cold, of public", "cold", 256, "episodes_per_s",
           "ours clients, sync", "public clients, sync", 4, at_least=True),
    Target("EnvClients of one process, churn, of public", "churn", 64, "episodes_per_s",
           "ours clients, sync", "public clients, sync", 7, at_least=True),
    Target("Atari, VectorEnv of 32, every frame, of 32 public clients", "atari_every_frame", 32,
           "steps_per_s", "ours VectorEnv of atari", "public clients of atari", 40, at_least=True),
    Target("Atari, send and recv of 32, every frame, of 32 public clients", "atari_every_frame", 32,
           "steps_per_s", "ours send and recv of atari", "public clients of atari", 40,
           at_least=True),
    Target("Atari, VectorEnv of 32, rgb, of ALE in the process", "atari_rgb", 32,
           "steps_per_s", "ours VectorEnv of atari", "bare ALE", 1 / 2, at_least=True),
    Target("Atari, VectorEnv of 32, grayscale, of ALE in the process", "atari_grayscale", 32,
           "steps_per_s", "ours VectorEnv of atari", "bare ALE", 1 / 2, at_least=True),
    Target("share of 16,384 sessions that succeed", "scale", 16384, "succeeded",
           "ours sync", None, 1, at_least=True),
    Target("KiB a session, 16,384 sessions", "scale", 16384, "rss_kib", "ours sync", None, 24),
    Target("openings/s, of public", "open", 1024, "open_rate",
           "ours sync", "public sync", 3, at_least=True),
    Target("EnvClient's CPU a step, awaited, of public", "client", 0, "cpu_us",
           "ours await", "public await", 1 / 3),
    Target("EnvClient's CPU a step, sync(), of public", "client", 0, "cpu_us",
           "ours sync()", "public sync()", 1 / 3),
    Target("EnvClient's CPU a step, 256 in a process, of public", "vector", 256, "cpu_us",
           "ours clients", "public clients", 1 / 3),
    Target("start to /health, of public", "start", 0, "seconds",
           "ours sync", "public sync", 1 / 5),
    Target("/mcp, calls/s with a session, of public", "mcp", 1, "steps_per_s",
           "ours json-rpc, call", "public json-rpc, call", 3, at_least=True),
    Target("/mcp, CPU a call by MCP 2026, of FastMCP", "mcp", 16, "server_cpu_us",
           "ours 2026, call", "FastMCP 2026, call", 1.3),
    Target("/mcp, CPU a call by MCP 2025, of FastMCP", "mcp", 16, "server_cpu_us",
           "ours 2025, call", "FastMCP 2025, call", 1.3),
    Target("/mcp, KiB a session by MCP 2025, of FastMCP", "mcp_memory", 512, "rss_kib",
           "ours @tool 2025", "FastMCP 2025", 1.3),
)  # fmt: skip


def _targets_table(targets: Iterable[Target], parts: dict[str, Rows]) -> str:
    heads = ("target", "", "measured", "limit")
    return _table(heads, (_target_line(target, parts) for target in targets), words=2)


def _target_line(target: Target, parts: dict[str, Rows]) -> list[str]:
    measured = target.measured(parts)
    limit = f"{'at least' if target.at_least else 'at most'} {target.shown(target.limit)}"
    if measured is None:
        return [target.what, "not measured", "-", limit]
    verdict = "met" if target.is_met(measured) else "MISSED"
    return [target.what, verdict, target.shown(measured), limit]


# ------------------------------------------------------------------ plots

LINES = {
    "steps_per_s": "steps a second",
    "server_cpu_us": "server CPU a step, µs",
    "p99_us": "p99 latency, µs",
}
BARS = (
    "open",
    "memory",
    "frames",
    "client",
    "vector",
    "cold",
    "churn",
    "kept",
    "atari_rgb",
    "atari_every_frame",
)


def _draw(folder: Path, part: str, rows: Rows) -> Path | None:
    """Draw the plot of a part, if it has one."""
    names = list(dict.fromkeys(row["contender"] for row in rows))
    points = sorted({row["sessions"] for row in rows})
    path = folder / f"{part}.svg"

    def of(name: str, sessions: int, metric: str) -> list[float]:
        return list(values(rows, name, sessions, metric).values())

    if part == "steps" and len(points) > 1:
        draw_lines(path, names, points, LINES, of)
    elif part in BARS:
        column, most = COLUMNS[part][0], points[-1]
        names = [name for name in names if of(name, most, column.metric)]
        where = f", {most:,} sessions" if most else ""
        draw_bars(path, names, most, column.metric, f"{column.head}{where}", of)
    else:
        return None
    return path


# ------------------------------------------------------------------ the report

_ATARI = (
    "8 or 32 games of Pong stepped together, until their frames are arrays of NumPy. The server "
    "has one core and the client the other; `bare ALE` steps the games in the client's process."
)

_COLD = (
    "A fresh server, whose environment declares what the name says (`sync` declares nothing), and "
    "`EnvClient`s of one Python process. All is counted from the first connect to the last close."
)

SECTIONS = {
    "steps": (
        "Steps",
        "Closed loop: every session sends its next step when the last one is answered. Server CPU "
        "is user and system time of all its processes. Latency as the load generator sees it.",
    ),
    "round_trip": (
        "Round trip",
        "One session; the load generator sleeps while it waits, as clients do.",
    ),
    "open": ("Opening", "Connect, handshake and first reset, 256 under way at a time."),
    "memory": (
        "Memory",
        "Of a fresh server with all sessions open, reset and stepped five times, less what it "
        "had before.",
    ),
    "scale": ("Scale", "One server of ours; every session opens, resets and steps five times."),
    "frames": (
        "Frames",
        "Sixteen sessions whose observation carries a screen of 210 x 160 x 3 bytes: as a list of "
        "integers in JSON, or as raw bytes.",
    ),
    "start": ("Start", "From the start of the server's process to the first 200 of `/health`."),
    "client": (
        "Client",
        "CPU time of a client process with one session, against the bare server.",
    ),
    "vector": ("Vector", "256 sessions of one client process, stepped together, warm."),
    "cold": (
        "Cold",
        f"{_COLD} 256 clients connect at once, reset, step ten times and close.",
    ),
    "churn": (
        "Churn",
        f"{_COLD} 2,000 episodes of five steps, each in a new session, 64 at once.",
    ),
    "kept": (
        "Kept sessions",
        f"{_COLD} The same episodes in 64 sessions that stay, each begun by a reset.",
    ),
    "atari_rgb": (
        "Atari, rgb",
        f"{_ATARI} A step is four frames of the emulator, of which one is seen: 210 x 160 x 3.",
    ),
    "atari_grayscale": ("Atari, grayscale", "The same with frames of 210 x 160."),
    "atari_every_frame": (
        "Atari, every frame",
        "The same with frames of 210 x 160 x 3, and every frame of the emulator seen.",
    ),
    "mcp": (
        "Tools at /mcp",
        "`tools/list` and `tools/call` of one tool that returns its argument. Every connection "
        "asks again when it is answered. `json-rpc` is what the public package speaks there; the "
        "years are revisions of MCP. `ours` takes its tool from a FastMCP server, as the public "
        "environment does. `ours @tool` has it as a method. `FastMCP` serves the tool alone, "
        "without environments.",
    ),
    "mcp_memory": (
        "Memory of sessions at /mcp",
        "512 sessions, each called once and left open.",
    ),
}


def _preamble(stored: dict[str, Any]) -> str:
    found, versions = stored["machine"], stored["versions"]
    rounds = 1 + max(row["round"] for row in stored["rows"])
    return (
        f"openenv {versions[OURS]['openenv']} ({versions[OURS]['commit']}) beside the public "
        f"package {versions[PUBLIC]['openenv']}; {found['cpu']}, {found['cores']} cores, "
        f"{found['kernel']}, Python {found['python']}; "
        f"{rounds} interleaved round{'s' * (rounds > 1)}, {stored['date']}."
    )


def _section(folder: Path, page: Path, stored: dict[str, Any]) -> str:
    part, rows = stored["part"], stored["rows"]
    heading, explanation = SECTIONS[part]
    pieces = [explanation, _preamble(stored), _part_table(part, rows)]
    plot = _draw(folder, part, rows)
    if plot is not None:
        pieces.append(f"![{heading}]({plot.relative_to(page.parent)})")
    return "\n\n".join(pieces)


def write(folder: Path, parts: Sequence[str]) -> bool:
    """Write the sections of `parts`, and the targets; return whether all measured targets are met.

    In a folder other than `RESULTS`, results of other parts are ignored.
    """
    page = HERE / "RESULTS.md" if folder == RESULTS else folder / "RESULTS.md"
    stored = _stored(folder, SECTIONS if folder == RESULTS else parts)
    for part in SECTIONS:
        if part in parts and part in stored:
            _publish(page, SECTIONS[part][0], _section(folder, page, stored[part]))
    if folder == RESULTS and league_report.publish(folder, page) is not None:
        print(f"\n## {league_report.HEADING}\n\nwritten anew from its results")
    rows = {part: content["rows"] for part, content in stored.items()}
    targets = [t for t in TARGETS if folder == RESULTS or t.measured(rows) is not None]
    _publish(page, "Targets", _targets_table(targets, rows))
    measured = [(target, target.measured(rows)) for target in targets]
    return all(value is None or t.is_met(value) for t, value in measured)


def _stored(folder: Path, parts: Iterable[str]) -> dict[str, dict[str, Any]]:
    paths = [path for part in parts if (path := folder / f"{part}.json").exists()]
    contents = {path.stem: json.loads(path.read_text("utf-8")) for path in paths}
    return {part: content for part, content in contents.items() if content["rows"]}


def _publish(page: Path, heading: str, text: str) -> None:
    write_section(page, heading, text)
    print(f"\n## {heading}\n\n{text}")
