"""The league as tables, a plot and a text that says where ours wins and where it loses."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.import_cost import write_section
from benchmarks.plots import draw_league

__all__ = ["HEADING", "one_line", "publish", "section", "write"]

HERE = Path(__file__).resolve().parent
HEADING = "League"
FILE = "league.json"
CARTPOLE = "cartpole"
WORKLOADS = ("cold", "churn", "warm", "kept")
OURS = "ours"

Row = dict[str, Any]
Rows = list[Row]

EXPLANATION = (
    "One trivial environment, an echo whose every step has the reward 1.0, at OpenEnv and at what "
    "one would pick instead. Each is driven by its own client with the settings that it recommends "
    "for speed, and every answer is checked. `cold` opens all sessions at once at a fresh server; "
    "each resets, steps ten times and closes. `churn` plays episodes of five steps, a new session "
    "for each, 64 at once. `warm` steps kept sessions. `kept` plays episodes of five steps in 64 "
    "kept sessions. A cell has steps per second, and the CPU time of client and server together "
    "per step. Neither side is pinned to a core, since some contenders have a process for each "
    "session."
)
NOT_THE_SAME = (
    "The contenders do not promise the same. A bare socket validates nothing and recovers from "
    "nothing; Gymnasium and EnvPool have no network; a request of verifiers runs a whole episode, "
    "with a model's request for every step. Their figures are what their users get for this work."
)


# ------------------------------------------------------------------ figures


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _found(rows: Rows, contender: str, workload: str, asked: int | None = None) -> Rows:
    return [
        row
        for row in rows
        if (row["contender"], row["workload"]) == (contender, workload)
        and asked in (None, row["asked"])
    ]


def _median(rows: Rows, metric: str) -> float | None:
    found = [row[metric] for row in rows if row.get(metric) is not None]
    return statistics.median(found) if found else None


def _names(rows: Rows, *, of_cartpole: bool) -> list[str]:
    chosen = [row["contender"] for row in rows if (row["workload"] == CARTPOLE) == of_cartpole]
    return list(dict.fromkeys(chosen))


def _is_ours(name: str) -> bool:
    return name.split()[0] == OURS


def one_line(row: Row) -> str:
    """Return a row as a progress line."""
    head = f"{row['contender']}, {row['workload']}, {row['asked']}, round {row['round'] + 1}:"
    if "reason" in row:
        return f"{head} {row['reason']}"
    waits = f", p50 {row['p50_us']:,.0f} µs" if row["p50_us"] is not None else ""
    episodes = f", {row['episodes_per_s']:,.1f} episodes/s" if row["episodes"] else ""
    return (
        f"{head} {row['steps_per_s']:,.0f} steps/s{episodes}, {row['cpu_us']:,.0f} µs CPU a step "
        f"({row['sessions']} sessions, {row['steps']} steps in {row['wall_s']:.1f} s){waits}"
    )


# ------------------------------------------------------------------ tables


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rule, *lines))


def _cell(rows: Rows) -> str:
    rate, cpu = _median(rows, "steps_per_s"), _median(rows, "cpu_us")
    if rate is None or cpu is None:
        return "-"
    cut = any(row["sessions"] < row["asked"] for row in rows if "sessions" in row)
    return f"{_number(rate)} · {_number(cpu)} µs{' *' if cut else ''}"


def _main_table(rows: Rows) -> str:
    names = _names(rows, of_cartpole=False)
    workloads = [name for name in WORKLOADS if any(row["workload"] == name for row in rows)]
    lines = [[name, *(_cell(_found(rows, name, w)) for w in workloads)] for name in names]
    return _table(["steps/s · CPU a step", *workloads], lines)


def _details_table(rows: Rows) -> str:
    """Return episodes per second, and what a session waits for a step."""
    lines = []
    for name in _names(rows, of_cartpole=False):
        cells = []
        for workload in ("cold", "churn", "kept"):
            rate = _median(_found(rows, name, workload), "episodes_per_s")
            cells.append("-" if rate is None else _number(rate))
        for workload in ("warm", "kept"):
            wait = _median(_found(rows, name, workload), "p50_us")
            cells.append("-" if wait is None else f"{wait / 1e3:,.2f}")
        lines.append([name, *cells])
    heads = ["", "cold, episodes/s", "churn, episodes/s", "kept, episodes/s"]
    return _table([*heads, "warm, p50 of a step, ms", "kept, p50 of a step, ms"], lines)


def _cartpole_table(rows: Rows) -> str:
    points = sorted({row["asked"] for row in rows if row["workload"] == CARTPOLE})
    lines = []
    for name in _names(rows, of_cartpole=True):
        cells = [_cell(_found(rows, name, CARTPOLE, point)) for point in points]
        lines.append([name.removesuffix(" of CartPole"), *cells])
    return _table(["steps/s · CPU a step", *(f"{point:,}" for point in points)], lines)


# ------------------------------------------------------------------ the text


def _places(rows: Rows) -> list[str]:
    """Return a sentence for every workload: the best of ours, who is faster, and by how much."""
    sentences = []
    for workload in WORKLOADS:
        rates = {
            name: rate
            for name in _names(rows, of_cartpole=False)
            if (rate := _median(_found(rows, name, workload), "steps_per_s")) is not None
        }
        best = max((n for n in rates if _is_ours(n)), key=rates.__getitem__, default=None)
        if best is None or len(rates) < 2:
            continue
        others = sorted((n for n in rates if not _is_ours(n)), key=rates.__getitem__)
        ahead = [f"{n} ({rates[n] / rates[best]:.1f}x)" for n in others if rates[n] > rates[best]]
        behind = [f"{n} (1/{rates[best] / rates[n]:.1f})" for n in others if rates[n] < rates[best]]
        words = f"`{workload}`: {best} makes {_number(rates[best])} steps/s."
        words += f" Faster: {', '.join(reversed(ahead))}." if ahead else " Nobody is faster."
        words += f" Slower: {', '.join(reversed(behind))}." if behind else ""
        sentences.append(f"- {words}")
    return sentences


def _cpu_places(rows: Rows) -> list[str]:
    """Return a sentence for every workload at which somebody uses less CPU time than ours."""
    sentences = []
    for workload in WORKLOADS:
        costs = {
            name: cost
            for name in _names(rows, of_cartpole=False)
            if (cost := _median(_found(rows, name, workload), "cpu_us")) is not None
        }
        best = min((n for n in costs if _is_ours(n)), key=costs.__getitem__, default=None)
        if best is None:
            continue
        less = [n for n in costs if not _is_ours(n) and costs[n] < costs[best]]
        if less:
            told = ", ".join(f"{name} ({_number(costs[name])} µs)" for name in less)
            ours = f"{best} uses {_number(costs[best])} µs"
            sentences.append(f"- `{workload}`: {ours}; less: {told}.")
    return sentences


def _cartpole_places(rows: Rows) -> list[str]:
    sentences = []
    for point in sorted({row["asked"] for row in rows if row["workload"] == CARTPOLE}):
        rates = {
            name.removesuffix(" of CartPole"): rate
            for name in _names(rows, of_cartpole=True)
            if (rate := _median(_found(rows, name, CARTPOLE, point), "steps_per_s")) is not None
        }
        best = max((n for n in rates if _is_ours(n)), key=rates.__getitem__, default=None)
        if best is None or len(rates) < 2:
            continue
        told = [f"{n} {rates[n] / rates[best]:.2f}x" for n in rates if not _is_ours(n)]
        sentences.append(f"- {point:,}: of {best}'s steps/s, {', '.join(told)}.")
    return sentences


def _missing(rows: Rows) -> list[str]:
    found: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        if "reason" in row:
            told = found.setdefault((row["contender"], row["reason"]), {})
            told[f"`{row['workload']}`"] = None
    return [f"- {name}, {', '.join(w)}: {why.rstrip('.')}." for (name, why), w in found.items()]


def _cuts(stored: Row) -> list[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for name, contender in stored["contenders"].items():
        for workload, limit in contender["limits"].items():
            if not _median(_found(stored["rows"], name, workload), "steps"):
                continue
            cut = [f"{limit['sessions']} sessions"] if limit["sessions"] else []
            cut += [f"{limit['episodes']} episodes"] if limit["episodes"] else []
            told = f"at most {' and '.join(cut)}: {limit['why']}"
            found.setdefault((name, told), []).append(f"`{workload}`")
    return [f"- {name}, {', '.join(w)}: {told}." for (name, told), w in found.items()]


def _preamble(stored: Row) -> str:
    machine, plan = stored["machine"], stored["plan"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['kernel']}, Python "
        f"{machine['python']}; {plan['rounds']} interleaved "
        f"round{'s' * (plan['rounds'] > 1)}, medians; {plan['sessions']} sessions of `cold` and "
        f"`warm`, {plan['episodes']:,} episodes of `churn`, windows of {plan['seconds']:g} s; "
        f"`{stored['command']}`, {stored['date']}."
    )


def _contenders(stored: Row) -> list[str]:
    lines = []
    for name, contender in stored["contenders"].items():
        versions = ", ".join(f"{k} {v}" for k, v in contender["versions"].items())
        lines.append(f"- {name}: {contender['what']} ({versions}).")
    return lines


def section(stored: Row, plot: str | None) -> str:
    """Return the section of the results, with a link to `plot` if there is one."""
    rows = stored["rows"]
    pieces = [EXPLANATION, _preamble(stored)]
    if _names(rows, of_cartpole=False):
        pieces.append(_main_table(rows))
        if cuts := _cuts(stored):
            pieces.append("\\* with fewer sessions than the others:\n\n" + "\n".join(cuts))
        if plot is not None:
            pieces.append(f"![{HEADING}]({plot})")
        pieces.append(_details_table(rows))
        if places := _places(rows):
            pieces.append("Steps per second, as a multiple of the best of ours:")
            pieces.append("\n".join(places))
        if places := _cpu_places(rows):
            pieces.append("Where ours uses more CPU time per step than another:")
            pieces.append("\n".join(places))
        pieces.append(NOT_THE_SAME)
    if _names(rows, of_cartpole=True):
        pieces.append(
            "CartPole, warm, by number of environments. EnvPool has only environments of its own, "
            "so it cannot serve the echo."
        )
        pieces.append(_cartpole_table(rows))
        pieces.append("\n".join(_cartpole_places(rows)))
    if missing := _missing(rows):
        pieces.append("Not measured:\n\n" + "\n".join(missing))
    pieces.append("The contenders:\n\n" + "\n".join(_contenders(stored)))
    return "\n\n".join(piece for piece in pieces if piece)


def _draw(folder: Path, stored: Row) -> Path | None:
    rows = stored["rows"]
    panels: dict[str, dict[str, list[float]]] = {}
    for workload in WORKLOADS:
        rates = {
            name: [row["steps_per_s"] for row in found if "steps_per_s" in row]
            for name in _names(rows, of_cartpole=False)
            if (found := _found(rows, name, workload))
        }
        if any(rates.values()):
            panels[workload] = rates
    if not panels:
        return None
    path = folder / "league.svg"
    draw_league(path, panels, "steps/s")
    return path


def publish(folder: Path, page: Path) -> str | None:
    """Write the section from the results in `folder`; return its text, or None without results."""
    file = folder / FILE
    if not file.exists():
        return None
    stored: Row = json.loads(file.read_text(encoding="utf-8"))
    plot = _draw(folder, stored)
    text = section(stored, None if plot is None else str(plot.relative_to(page.parent)))
    write_section(page, HEADING, text)
    return text


def write(folder: Path, stored: Row, *, prints: bool) -> None:
    """Store the results of a run, and write the section."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(f"{json.dumps(stored, indent=1)}\n", encoding="utf-8")
    page = HERE / "RESULTS.md" if folder == HERE / "results" else folder / "RESULTS.md"
    text = publish(folder, page)
    if prints:
        print(f"\n## {HEADING}\n\n{text}")
