"""GRPO on an environment of OpenEnv: what the examples grpo_* have in common.

The environment is served in a process of its own, and a pool gives out its sessions. Without
`--model`, a model is made on the spot (`tiny_models`): it is shown how one speaks there by episodes
of poor moves, so that it knows the form, and little of the game. What it is worth is measured
before and after, on the same episodes, none of which it was trained on.

`--trainer trl` trains by TRL's GRPOTrainer (`grpo_by_trl.py`), `--trainer fabric` by a loop of
Lightning Fabric (`grpo_by_fabric.py`).

Needs `pip install torch transformers matplotlib`, and `trl` or `lightning`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tiny_models import CHATML, imitate, model_for, tokenizer_for
from transformers import AutoModelForCausalLM, AutoTokenizer

from openenv import EnvPool, GenericEnvClient, ProcessProvider
from openenv.client import background
from openenv.integrations.transformers import sampler
from openenv.rollouts.batched import BatchPlayer
from openenv.rollouts.episode_sessions import EpisodeSessions, EpisodeStart
from openenv.rollouts.meter import StepCost
from openenv.rollouts.tokens import Chat, TokenRollout

__all__ = ["Game", "Player", "Trained", "main", "messages"]

# Seeds of episodes that nobody is trained on.
EVALUATION, DEMONSTRATION = 1_000_000_000, 1_500_000_000

Player = Callable[[str], str]
"""Replies to what the environment shows."""


@dataclass
class Game:
    """What an example says of its environment.

    Attributes:
        name: Of the example.
        environment: What is served.
        prompt: What the model is told, where no rows say more.
        player: Gives, for an episode, what replies to what the environment shows. The model is
            shown such episodes: of the right form, and no good, or not always.
        shows: Fields of observations that the model is shown; by default all.
        variables: Of the server's process.
        rows: What it is trained on, with a prompt and the arguments of a reset each, where that is
            more than a seed.
        held_out: Likewise, what it is measured by.
        hidden: Numbers in a hidden state of the model made here.
        layers: Of that model.
        spread: Of its weights; see `tiny_models.model_for`.
        vocabulary: Tokens that it knows.
        demonstrations: Episodes by which it is shown how one speaks.
        shown: Steps of that.
        steps: Of GRPO.
        groups: Different episodes in a step.
        generations: Rollouts of each.
        turns: Replies in a rollout.
        tokens: That a rollout may have behind the prompt.
        rate: The learning rate of GRPO.
        episodes: By which it is measured before and after.
        settings: Further ones, of `GRPOConfig`, or with `--trainer fabric` of `GRPOSettings`.
    """

    name: str
    environment: str
    prompt: str
    player: Callable[[random.Random], Player]
    shows: Sequence[str] | None = None
    variables: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    held_out: list[dict[str, Any]] = field(default_factory=list)
    hidden: int = 96
    layers: int = 2
    spread: float = 0.02
    vocabulary: int = 512
    demonstrations: int = 256
    shown: int = 250
    steps: int = 150
    groups: int = 8
    generations: int = 8
    turns: int = 8
    tokens: int = 256
    rate: float = 3e-4
    episodes: int = 1024
    settings: dict[str, Any] = field(default_factory=dict)

    def start(self, number: int, *, is_held_out: bool = False) -> EpisodeStart:
        """How an episode begins that nobody is trained on, or is shown."""
        rows = self.held_out if is_held_out else self.rows
        if not rows:
            seed = (EVALUATION if is_held_out else DEMONSTRATION) + number
            return EpisodeStart(messages(self.prompt), {"seed": seed})
        row = dict(rows[number % len(rows)])
        return EpisodeStart(row.pop("prompt"), row)


def messages(prompt: str) -> list[dict[str, Any]]:
    """What a model is told."""
    return [{"role": "user", "content": prompt}]


@dataclass
class Measured:
    """What rewards of episodes are: their mean, and how far off that may be (95 %)."""

    mean: float
    margin: float
    failures: int

    @classmethod
    def of(cls, rewards: Sequence[float | None]) -> Measured:
        known = [one for one in rewards if one is not None]
        margin = 1.96 * statistics.stdev(known) / math.sqrt(len(known))
        return cls(statistics.fmean(known), margin, len(rewards) - len(known))

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.margin:.3f}"


class Table:
    """Where episodes are played outside of the trainer."""

    def __init__(self, game: Game, sessions: EpisodeSessions, tokenizer: Any) -> None:
        self._game = game
        self._sessions = sessions
        self._tokenizer = tokenizer
        self._chat = Chat(tokenizer, sessions.interface, "text")

    def demonstrations(self, seed: int) -> list[tuple[list[int], list[int], list[int]]]:
        """Episodes of such replies, as tokens: prompt, what follows, and which of that is said."""
        return background.run(self._demonstrations(seed))

    async def _demonstrations(self, seed: int) -> list[tuple[list[int], list[int], list[int]]]:
        chance, found = random.Random(seed), []
        session = await self._sessions.take()
        for number in range(self._game.demonstrations):
            rollout = TokenRollout(session, self._chat, max_turns=self._game.turns)
            start = self._game.start(number)
            reply_to = self._game.player(chance)
            goes_on = await rollout.begin(start)
            while goes_on:
                reply = reply_to(rollout.messages[-1]["content"])
                goes_on = await rollout.take(
                    self._tokenizer.encode(reply + self._tokenizer.eos_token)
                )
            found.append((rollout.prompt_ids, rollout.completion_ids, rollout.mask))
        await session.close()
        return found

    def measure(self, player: BatchPlayer, model: Any, seed: int) -> Measured:
        """Play episodes by sampling from a model, as in training."""
        torch.manual_seed(seed)
        sample = sampler(model, self._tokenizer, max_tokens=self._game.tokens)
        size, rewards = self._game.groups * self._game.generations, []
        for at in range(0, self._game.episodes, size):
            numbers = range(at, min(at + size, self._game.episodes))
            starts = [self._game.start(number, is_held_out=True) for number in numbers]
            played = player.play(
                self._chat,
                starts,
                sample,
                max_tokens=self._game.tokens,
            )
            rewards += [one.score.value for one in played]
        return Measured.of(rewards)


async def _heard(game: Game, sessions: EpisodeSessions, seed: int) -> list[str]:
    """What is said in the game, for the tokenizer to learn its words of."""
    chance, texts = random.Random(seed), [CHATML]
    texts += [json.dumps(tool.as_tool()) for tool in sessions.interface.tools]
    session = await sessions.take()
    for number in range(game.demonstrations):
        start = game.start(number)
        texts += [message["content"] for message in start.messages]
        reply_to = game.player(chance)
        seen = session.seen(await session.reset(**start.arguments))
        for _ in range(game.turns):
            reply = reply_to(seen)
            texts += [seen, reply]
            answer = await session.reply(reply)
            seen = answer.text
            if answer.is_over:
                break
        texts.append(seen)
    await session.close()
    return texts


def _made(game: Game, sessions: EpisodeSessions, seed: int) -> tuple[Any, Any]:
    heard = background.run(_heard(game, sessions, seed))
    tokenizer = tokenizer_for(heard, CHATML, game.vocabulary)
    model = model_for(
        tokenizer, hidden=game.hidden, layers=game.layers, spread=game.spread, seed=seed
    )
    shown = Table(game, sessions, tokenizer).demonstrations(seed)
    losses = imitate(model, shown, steps=game.shown, seed=seed)
    _say(f"warm start: {len(shown)} episodes, loss {losses[-1]:.3f} at last")
    return model, tokenizer


@dataclass
class Trained:
    """What a trainer says of its steps.

    Attributes:
        rewards: The mean of each.
        costs: What each took.
    """

    rewards: list[float]
    costs: list[StepCost]


def trained(
    game: Game, trainer: str, seed: int, out: Path, model_path: str | None = None
) -> dict[str, Any]:
    """Train once.

    Args:
        game: On what.
        trainer: By what: ``trl`` or ``fabric``.
        seed: Of everything that is random.
        out: A folder for what it writes.
        model_path: A folder with a model; without, one is made here.

    Returns:
        What came of it; also written to ``seed-SEED.json`` in `out`.
    """
    train = importlib.import_module(f"grpo_by_{trainer}").train
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    size = game.groups * game.generations
    provider = ProcessProvider(
        game.environment, env_vars={**game.variables, "MAX_CONCURRENT_ENVS": str(2 * size + 2)}
    )
    with EnvPool(
        provider, GenericEnvClient, sessions_per_server=2 * size + 2, max_servers=1
    ) as pool:
        player = BatchPlayer(pool, max_turns=game.turns, shows=game.shows)
        if model_path is None:
            model, tokenizer = _made(game, player.sessions, seed)
        else:
            tokenizer = AutoTokenizer.from_pretrained(model_path)
            model = AutoModelForCausalLM.from_pretrained(model_path, dtype="auto")
        table = Table(game, player.sessions, tokenizer)
        before = table.measure(player, model, seed)
        _say(f"before: {before}")
        learnt: Trained = train(game, pool, model, tokenizer, seed, out)
        if not learnt.costs:
            raise SystemExit(
                f"{trainer} made none of {game.steps} steps: a step has groups * generations = "
                f"{size} rollouts; do steps and settings ask for as many?"
            )
        model.eval()
        after = table.measure(player, model, seed)
        _say(f"after:  {after}")
        player.close()
    found = {
        "game": game.name,
        "trainer": trainer,
        "seed": seed,
        "before": vars(before),
        "after": vars(after),
        "rewards": learnt.rewards,
        "environment_failures": sum(one.environments.failures for one in learnt.costs),
        "environment_share": sum(one.environments.waited_s for one in learnt.costs)
        / sum(one.seconds for one in learnt.costs),
        "seconds": time.perf_counter() - began,
    }
    (out / f"seed-{seed}.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


def plot(runs: Sequence[dict[str, Any]], path: Path, baselines: dict[str, float]) -> None:
    """Draw the rewards of runs over their steps, smoothed, and what they are compared with."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for run in runs:
        rewards, smooth, kept = run["rewards"], [], 0.0
        for number, one in enumerate(rewards, 1):
            kept += (one - kept) / min(number, 10)
            smooth.append(kept)
        axes.plot(range(1, len(smooth) + 1), smooth, label=f"seed {run['seed']}")
    for name, value in baselines.items():
        axes.axhline(value, linestyle="--", color="grey", linewidth=1)
        axes.annotate(name, (1, value), textcoords="offset points", xytext=(2, 3), fontsize=8)
    axes.set(xlabel="step of GRPO", ylabel="mean reward of a step's rollouts (mean of 10)")
    axes.set_title(f"{runs[0]['game']}: GRPO through OpenEnv")
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(game: Game, baselines: dict[str, float] | None = None) -> None:
    """Train as the command line says, and tell what came of it."""
    parser = argparse.ArgumentParser(description=f"Train a language model on {game.name} by GRPO.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="a run for each")
    parser.add_argument("--trainer", choices=["trl", "fabric"], default="trl")
    parser.add_argument("--steps", type=int, default=game.steps)
    parser.add_argument("--episodes", type=int, default=game.episodes, help="to measure by")
    parser.add_argument("--out", type=Path, default=Path("outputs") / game.name)
    parser.add_argument("--model", help="a folder with a model; by default a tiny one is made")
    parser.add_argument(
        "--config", type=Path, help="JSON of fields of Game, such as h200.json; see README.md"
    )
    given = parser.parse_args()
    if given.config is not None:
        for name, value in json.loads(given.config.read_text()).items():
            setattr(game, name, value)
    game.steps, game.episodes = given.steps, given.episodes
    runs = [trained(game, given.trainer, seed, given.out, given.model) for seed in given.seeds]
    plot(runs, given.out / "rewards.png", baselines or {})
    for run in runs:
        before, after = Measured(**run["before"]), Measured(**run["after"])
        _say(
            f"seed {run['seed']}: {before} -> {after} over {game.episodes} episodes, "
            f"{run['environment_failures']} environment failures, {run['seconds']:.0f} s"
        )
    print(json.dumps([{k: v for k, v in run.items() if k != "rewards"} for run in runs]))


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
