"""The steps of `openenv demo`: serve blackjack, train a policy, measure, and report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from openenv.cli._console import say, stderr
from openenv.cli._progress import Display, display
from openenv.cli.commands.demo import DemoOptions
from openenv.providers.process import ProcessProvider
from openspiel_env import OpenSpielEnv, blackjack
from openspiel_env.blackjack import CurvePoint, Evaluation

# Distance between the first hands of two seeds; more hands than a demo plays.
SEED_STRIDE = 10_000_000


@dataclass(frozen=True)
class DemoResult:
    """The measurements of a demo."""

    before: Evaluation
    after: Evaluation
    points: Sequence[CurvePoint]
    seconds: float

    @property
    def has_learned(self) -> bool:
        """Return whether the trained policy wins more than the random policy."""
        return self.after.mean > self.before.mean

    @property
    def share_of_the_way(self) -> float:
        """Return the progress from random play (0) to optimal play (1)."""
        return (self.after.mean - self.before.mean) / (blackjack.OPTIMUM - self.before.mean)


def run(plan: DemoOptions) -> DemoResult:
    """Run the demo and write the files."""
    plan.output_dir.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    with display() as shown:
        before, after, points = asyncio.run(_learn(plan, shown))
        shown.begin("plotting")
        blackjack.plot_curve(points, before, after, blackjack.OPTIMUM, plan.curve)
        shown.finish(plan.curve.name)
    return DemoResult(before, after, points, time.perf_counter() - began)


async def _learn(
    plan: DemoOptions, shown: Display
) -> tuple[Evaluation, Evaluation, list[CurvePoint]]:
    shown.begin("starting")
    provider = ProcessProvider(
        "openspiel_env",
        env_vars={"OPENSPIEL_GAME": "blackjack", "MAX_CONCURRENT_ENVS": str(plan.sessions)},
    )
    async with OpenSpielEnv.with_provider(provider) as env:
        others = [env.new_session() for _ in range(plan.sessions - 1)]
        envs = [env, *await asyncio.gather(*others)]
        shown.finish(f"{plan.sessions} sessions, process {provider.pid}")
        policy = blackjack.SoftmaxPolicy()

        async def evaluate(what: str, choose: blackjack.Choose) -> Evaluation:
            shown.begin(what)
            seed0 = blackjack.EVALUATION_SEEDS + plan.seed * SEED_STRIDE
            result = await blackjack.evaluate(envs, choose, plan.evaluation_hands, seed0)
            shown.finish(f"mean reward {_mean(result)}")
            return result

        before = await evaluate("random play", blackjack.random_choice)
        points = await _train(plan, shown, envs, policy)
        after = await evaluate("learned play", policy.greedy)
    return before, after, points


async def _train(
    plan: DemoOptions, shown: Display, envs: Sequence[OpenSpielEnv], policy: blackjack.SoftmaxPolicy
) -> list[CurvePoint]:
    shown.begin("training", plan.hands)
    with plan.episodes.open("w", encoding="utf-8", newline="\n") as file:
        points = await blackjack.train(
            envs,
            policy,
            plan.hands,
            on_progress=lambda point: shown.update(point.hands, _pace(point)),
            seed0=blackjack.TRAINING_SEEDS + plan.seed * SEED_STRIDE,
            record=lambda episodes: blackjack.write_episodes(file, episodes),
        )
    shown.finish(_pace(points[-1]))
    return points


def _pace(point: CurvePoint) -> str:
    return f"{point.hands / point.seconds:,.0f} hands/s, mean reward {point.mean_reward:+.3f}"


def show(plan: DemoOptions, outcome: DemoResult) -> None:
    """Print the result for people."""
    table = Table(title="Blackjack, reward a hand")
    table.add_column("player")
    for column in ("mean ± stderr", "win", "draw", "loss"):
        table.add_column(column, justify="right")
    table.add_row("random", *_row(outcome.before))
    table.add_row("learned", *_row(outcome.after), style="bold")
    table.add_row("best possible", f"{blackjack.OPTIMUM:+.4f}", *("",) * 3, style="dim")
    stderr().print(table)
    say(_verdict(plan, outcome), style="green" if outcome.has_learned else "red")
    say(f"learning curve: {plan.curve}\nepisodes: {plan.episodes}")


def _row(player: Evaluation) -> list[str]:
    rates = (player.win_rate, player.draw_rate, player.loss_rate)
    return [_mean(player), *(f"{rate:.1%}" for rate in rates)]


def _mean(player: Evaluation) -> str:
    return f"{player.mean:+.4f} ± {player.stderr:.4f}"


def _verdict(plan: DemoOptions, outcome: DemoResult) -> str:
    played = f"{plan.hands:,} hands over {plan.sessions} sessions in {outcome.seconds:.0f} s"
    if not outcome.has_learned:
        return f"{played}: it has not learned to play"
    share = f"{outcome.share_of_the_way:.0%}"
    return f"{played}: {share} of the way from random play to the best player"


def as_data(plan: DemoOptions, outcome: DemoResult) -> dict[str, Any]:
    """Return the result as JSON data."""
    last = outcome.points[-1]
    return {
        "hands": plan.hands,
        "sessions": plan.sessions,
        "seed": plan.seed,
        "seconds": round(outcome.seconds, 3),
        "hands_per_second": round(last.hands / last.seconds, 1),
        "random": outcome.before._asdict(),
        "learned": outcome.after._asdict(),
        "optimum": blackjack.OPTIMUM,
        "share_of_the_way": round(outcome.share_of_the_way, 4),
        "has_learned": outcome.has_learned,
        "learning_curve": str(plan.curve),
        "episodes": str(plan.episodes),
    }
