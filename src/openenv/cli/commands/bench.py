"""`openenv bench`: how fast an environment is served, and what limits it."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openenv._internal.net.keys import key_for
from openenv._internal.targets import TargetKind, parse_target
from openenv.cli._console import MisuseError, emit, say, stdout
from openenv.cli._options import argument, complete_environments, option, takes_options
from openenv.cli._progress import display
from openenv.cli._readings import describe_duration
from openenv.cli.commands.rollout import report_errors
from openenv.cli.commands.serve import package_called

if TYPE_CHECKING:
    from openenv.cli._bench import BenchReport, TrainingEstimate


@dataclass(frozen=True)
class ShapeOptions:
    """The shape of a training run to plan for."""

    simulate: bool = option(False, help="Estimate the servers and memory of a training run.")
    rollouts: int = option(256, min=1, help="With --simulate: rollouts at once.")
    turns: int = option(10, min=1, help="With --simulate: steps of an episode.")
    reply_s: float = option(
        2.0, min=0.0, help="With --simulate: seconds that the model takes for a reply."
    )


@takes_options
def bench(
    *,
    target: str = argument(
        ...,
        metavar="TARGET",
        autocompletion=complete_environments,
        help="Environment: what `openenv serve` takes, which is then served from processes of its "
        "own; or the address of a server.",
    ),
    sessions: str = option(
        "1,16,64,256", metavar="NUMBERS", help="Numbers of sessions at once, with commas."
    ),
    seconds: float = option(2.0, min=0.2, help="Seconds to measure each number of sessions."),
    policy: str = option(
        "random", metavar="POLICY", help="Policy that acts: random, or module:name."
    ),
    shape: ShapeOptions,
    as_json: bool = option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Measure how fast an environment is served, and find what limits it.

    Each number of sessions is played by as many clients on one event loop, the largest also by a
    VectorEnv, and cold: on a fresh server, from opening to closing. The server and this client
    share the machine's processors.

    Examples:
        openenv bench echo --sessions 1,64 --seconds 1
        openenv bench blackjack --simulate --rollouts 512 --reply-s 4
    """
    from openenv.cli._bench import TrainingShape, estimate
    from openenv.cli._bench import bench as measure_all
    from openenv.rollouts import policy_named
    from openenv.rollouts.policies.functions import as_policy

    counts = _parse_counts(sessions)
    sys.path.insert(0, str(Path.cwd()))
    is_address = parse_target(target).kind is TargetKind.SERVER
    with report_errors(None, target), display() as shown:
        acts = as_policy(policy_named(policy))
        shown.begin("measuring", len(counts) + (1 if is_address else 2))
        report = measure_all(
            target if is_address else package_called(target),
            acts,
            counts,
            seconds,
            url=target if is_address else None,
            key=key_for(target) if is_address else None,
            room=shape.rollouts if shape.simulate else 1,
            tell=shown.update,
        )
        shown.finish(f"{len(report.measurements)} workloads")
    plan = None
    if shape.simulate:
        plan = estimate(report, TrainingShape(shape.rollouts, shape.turns, shape.reply_s))
    if as_json:
        emit({**report.as_data(), "estimate": None if plan is None else asdict(plan)})
        return
    stdout().print(_table(report))
    for line in _words(report, plan, shape):
        say(line)


def _parse_counts(text: str) -> list[int]:
    try:
        counts = sorted({int(one) for one in text.split(",")})
    except ValueError:
        counts = [0]
    if counts[0] < 1:
        raise MisuseError(
            f"--sessions {text!r} is not a list of numbers", hint="for example --sessions 1,64"
        )
    return counts


def _table(report: BenchReport) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("played by", no_wrap=True)
    for name in ("sessions", "steps/s", "p50", "p99", "code", "server", "client"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("limit", no_wrap=True)
    for one in report.measurements:
        times = (one.p50_s, one.p99_s, *map(one.per_step, _per_step(one)))
        name = one.client
        figures = (f"{one.sessions:,}", f"{one.steps_per_s:,.0f}", *map(describe_duration, times))
        table.add_row(name, *figures, report.limit_of(one).part)
    return table


def _per_step(one: Any) -> tuple[float | None, ...]:
    return one.environment_s, one.server_cpu_s, one.client_cpu_s


def _words(report: BenchReport, plan: TrainingEstimate | None, shape: ShapeOptions) -> list[str]:
    from openenv.cli._bench import COLD_STEPS

    lines = [
        "for each step: code, the time in the environment's code; server, client, their CPU time",
    ]
    cold = [one for one in report.measurements if one.client == "cold"]
    if cold:
        lines.append(
            f"cold: {cold[0].sessions:,} session{'s' if cold[0].sessions > 1 else ''} opened at "
            f"once, reset, {COLD_STEPS} steps, "
            f"closed: {cold[0].episodes_per_s:,.0f} episodes/s"
        )
    if report.session_bytes is not None and report.base_bytes is not None:
        base, each = report.base_bytes / 2**20, report.session_bytes / 2**10
        lines.append(f"memory: {base:,.0f} MiB for the server, {each:,.0f} KiB for each session")
    limit = report.limit_of(report.fastest)
    lines.append(f"the fastest is limited by {limit.words}: {limit.advice}")
    lines += [f"note: {note}" for note in report.notes]
    if plan is not None:
        memory = "" if plan.memory_bytes is None else f", {plan.memory_bytes / 2**30:,.1f} GiB"
        lines.append(
            f"{shape.rollouts:,} rollouts at once, with {shape.turns} turns and replies of "
            f"{shape.reply_s:g} s, need {plan.servers:,} server{'s' if plan.servers > 1 else ''} "
            f"(by the number of {plan.because}){memory}: {plan.steps_per_s:,.0f} steps/s, and "
            f"{plan.share:.1%} of a rollout's time in the environment"
        )
    return lines
