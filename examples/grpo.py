"""GRPO on an environment of OpenEnv: the common code of the examples grpo_*.

A pool serves the environment in a process of its own. Without `--model`, the example makes a small
model (`tiny_models`). Supervised training on episodes of poor moves teaches the model the form of
replies, but little of the game. The evaluations before and after GRPO use the same episodes, which
are not used for training.

`--trainer trl` trains with TRL's GRPOTrainer (`grpo_by_trl.py`), `--trainer fabric` with a loop of
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

# The first seeds of the episodes for evaluation and for demonstrations; GRPO uses other seeds.
EVALUATION, DEMONSTRATION = 1_000_000_000, 1_500_000_000

Player = Callable[[str], str]
"""A function that returns the reply to an observation's text."""


@dataclass
class Game:
    """The options of an example.

    Attributes:
        name: The name of the example.
        environment: The target to serve.
        prompt: The prompt of the model, if there are no `rows`.
        player: Makes a player for an episode of demonstrations. Its replies have the right form,
            but not all of its moves are good.
        shows: The fields of observations that the model sees. Default: all.
        variables: Environment variables of the server.
        rows: The training data, each with a prompt and the arguments of a reset. Without rows,
            episodes differ by their seeds.
        held_out: The evaluation data, in the same form.
        hidden: The size of a hidden state of the small model.
        layers: The number of layers of the small model.
        spread: The spread of the small model's initial weights; see `tiny_models.model_for`.
        vocabulary: The size of the small model's vocabulary.
        demonstrations: Episodes of the supervised training.
        shown: Steps of the supervised training.
        steps: Steps of GRPO.
        groups: Different episodes in a GRPO step.
        generations: Rollouts of each episode.
        turns: Maximum number of replies in a rollout.
        tokens: Maximum number of tokens of a rollout after the prompt.
        rate: The learning rate of GRPO.
        episodes: Episodes of the evaluations before and after.
        settings: Further settings of `GRPOConfig`, or with `--trainer fabric` of `GRPOSettings`.
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
        """Return the start of an episode for evaluation or for demonstrations."""
        rows = self.held_out if is_held_out else self.rows
        if not rows:
            seed = (EVALUATION if is_held_out else DEMONSTRATION) + number
            return EpisodeStart(messages(self.prompt), {"seed": seed})
        row = dict(rows[number % len(rows)])
        return EpisodeStart(row.pop("prompt"), row)


def messages(prompt: str) -> list[dict[str, Any]]:
    """Make the messages of a prompt."""
    return [{"role": "user", "content": prompt}]


@dataclass
class Measured:
    """The mean reward of episodes with its 95 % margin of error."""

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
    """Sessions and a tokenizer for demonstrations and evaluations, apart from the trainer."""

    def __init__(self, game: Game, sessions: EpisodeSessions, tokenizer: Any) -> None:
        self._game = game
        self._sessions = sessions
        self._tokenizer = tokenizer
        self._chat = Chat(tokenizer, sessions.interface, "text")

    def demonstrations(self, seed: int) -> list[tuple[list[int], list[int], list[int]]]:
        """Play demonstrations, and return their tokens: prompt, completion, and mask of replies."""
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
        """Play episodes with replies sampled from a model, as in training."""
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


async def _collect_texts(game: Game, sessions: EpisodeSessions, seed: int) -> list[str]:
    """Play demonstrations, and return their texts to train the tokenizer."""
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


def _make_model(game: Game, sessions: EpisodeSessions, seed: int) -> tuple[Any, Any]:
    texts = background.run(_collect_texts(game, sessions, seed))
    tokenizer = tokenizer_for(texts, CHATML, game.vocabulary)
    model = model_for(
        tokenizer, hidden=game.hidden, layers=game.layers, spread=game.spread, seed=seed
    )
    shown = Table(game, sessions, tokenizer).demonstrations(seed)
    losses = imitate(model, shown, steps=game.shown, seed=seed)
    _say(f"warm start: {len(shown)} episodes, loss {losses[-1]:.3f} at last")
    return model, tokenizer


@dataclass
class Trained:
    """The results of a trainer's steps.

    Attributes:
        rewards: The mean reward of each step.
        costs: The time of each step.
    """

    rewards: list[float]
    costs: list[StepCost]


def trained(
    game: Game, trainer: str, seed: int, out: Path, model_path: str | None = None
) -> dict[str, Any]:
    """Train once.

    Args:
        game: The example's options.
        trainer: ``trl`` or ``fabric``.
        seed: The seed of all random numbers.
        out: A folder for the output.
        model_path: A folder with a model; None makes a small one.

    Returns:
        The results, which are also written to ``seed-SEED.json`` in `out`.
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
            model, tokenizer = _make_model(game, player.sessions, seed)
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
    """Draw the smoothed rewards of runs over their steps, and the baselines."""
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
    """Train with the options of the command line, and print the results."""
    parser = argparse.ArgumentParser(description=f"Train a language model on {game.name} by GRPO.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="seeds, one run for each")
    parser.add_argument("--trainer", choices=["trl", "fabric"], default="trl")
    parser.add_argument("--steps", type=int, default=game.steps)
    parser.add_argument("--episodes", type=int, default=game.episodes, help="for evaluation")
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
