"""TRL's `rollout_func` for any environment: all rollouts of a batch act at the same time.

TRL's own loop, which `environment_factory` uses, carries out one call after the other. Slow
environments (a sandbox, a browser, a distant server) then dominate a training step. Here the model
replies to all rollouts of a batch, and then all their environments step at once.
"""

from __future__ import annotations

import inspect
import json
import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openenv.integrations.trl.environments import (
    COLUMNS_CURE,
    OF_BOTH,
    OF_TRL,
    Columns,
    episode_arguments,
)
from openenv.integrations.trl.processes import SharedModel, gather_values
from openenv.integrations.trl.rewards import TrainingRefused, check_reward_functions
from openenv.integrations.trl.trainers import clock_of, group_size, mode_of
from openenv.integrations.trl.versions import WITH_NAN_LOGPROBS, check_trl, installed_trl
from openenv.rollouts.batched import BatchPlayer
from openenv.rollouts.beginnings import Beginnings, digest_of
from openenv.rollouts.episode_sessions import EpisodeStart, Unfinished
from openenv.rollouts.failures import TaskNotTaken
from openenv.rollouts.meter import Meter
from openenv.rollouts.tokens import Chat, TokenRollout


def rollout_func(
    environment: Any,
    *,
    rows: Iterable[Mapping[str, Any]] | None = None,
    columns: Columns | None = None,
    at_once: int | None = None,
    max_turns: int = 32,
    unfinished: Unfinished = "earned",
    told: Any = None,
    seed: int = 0,
    retries: int = 2,
    failures_in_a_row: int | None = 32,
    shows: Sequence[str] | None = None,
    equal_beginnings: bool = True,
) -> RolloutFunc:
    """Make a ``rollout_func`` for TRL's GRPOTrainer, for use with `env_reward`.

        rollouts = rollout_func("blackjack")
        GRPOTrainer(..., rollout_func=rollouts, reward_funcs=env_reward)

    Besides the tokens, the function returns ``env_mask``, which is 0 for tokens that the model did
    not write, and the columns ``env_reward``, ``env_unscored``, ``env_steps`` and ``env_messages``.
    A rollout without a reward is masked entirely and does not count.

    TRL passes prompts only. So the row of the dataset, whose columns the environment is reset with,
    is looked up by its prompt. Rows with the same prompt may differ only in their ``seed``. Each
    group then gets one of the seeds (evaluations take them in order), and reward functions get the
    columns of the row with that seed instead of the row that TRL took. If the dataset has no seeds,
    the seed is derived from the trainer's step, the batch and the group, so that it is the same
    after resuming. The first observations are compared within each group.

    Several processes call the model together, so that each gets the replies to its own rollouts.

    Args:
        environment: The environment, as `openenv.rollout` takes it.
        rows: The rows of the dataset. Default: those of the trainer's current dataset, training or
            evaluation.
        columns: The columns to use; see `environment_factory`.
        at_once: Maximum number of concurrent rollouts, each in a session of its own. Default: a
            whole batch.
        max_turns: Maximum number of replies.
        unfinished: Reward of an episode that the model has not finished.
        told: How the model is told how to act: ``tools``, ``json`` or ``text``; see
            `openenv.rollouts.tokens.Chat`.
        seed: The seed from which the seeds of groups are derived.
        retries: Further attempts at a reset after a passing failure.
        failures_in_a_row: End training after this many failed rollouts in a row. None: never.
        shows: Observation fields that the model sees, in this order. Default: all public fields.
        equal_beginnings: Give seeds if the dataset has none, and raise `UnequalBeginnings` if two
            rollouts of a group begin differently. If False, beginnings are left to chance.

    Raises:
        NotSupported: The installed version of TRL is too old.
        OpenEnvError: The environment cannot be reached, or does not say how to act in it.
        TypeError: `environment` is not an environment.
        ValueError: Two rows with the same prompt differ in more than their seeds, `at_once` is not
            positive, or `shows` names a field that observations do not have.
    """
    check_trl()
    known = None if rows is None else _by_prompt(rows, columns, "`rows`")
    player = BatchPlayer(
        environment,
        at_once=at_once,
        max_turns=max_turns,
        unfinished=unfinished,
        retries=retries,
        failures_in_a_row=failures_in_a_row,
        shows=shows,
    )
    return RolloutFunc(player, known, columns, told, seed, equal_beginnings=equal_beginnings)


@dataclass
class _PromptEpisode:
    """The episode of the rows with the same prompt.

    Attributes:
        arguments: Arguments of reset, without the seed.
        may_ignore: Those of the arguments that the environment may ignore.
        seeds: The seeds of the rows, in order.
        rows: For each seed, the columns of its row for reward functions.
        unclear: Columns in which two rows with the same prompt and seed differ.
    """

    arguments: dict[str, Any]
    may_ignore: frozenset[str]
    seeds: list[Any] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    unclear: set[str] = field(default_factory=set)


Known = dict[str, _PromptEpisode]


class RolloutFunc:
    """A rollout function for TRL, created by `rollout_func`."""

    def __init__(
        self,
        player: BatchPlayer,
        known: Known | None,
        columns: Columns | None,
        told: Any,
        seed: int,
        *,
        equal_beginnings: bool = True,
    ) -> None:
        self.meter: Meter = player.meter
        self._player = player
        self._known = known
        self._columns = columns
        self._told = told
        self._seed = seed
        self._gives_seeds = equal_beginnings
        self._beginnings = Beginnings(player.sessions.name, is_on=equal_beginnings)
        self._trainer: weakref.ref[Any] | None = None
        self._of_dataset: dict[str, tuple[Any, Known]] = {}

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """Play a rollout for each prompt.

        Raises:
            CapacityError: The server has too few slots for the concurrent rollouts.
            EnvironmentsFailing: Too many rollouts in a row have failed.
            OpenEnvError: The environment cannot be reset with these arguments.
            TrainingRefused: A reward function would count failed rollouts, or the trainer's dataset
                cannot be read.
            UnequalBeginnings: Two rollouts of a group have begun differently.
            ValueError: No row has one of the prompts.
        """
        if self._trainer is None or self._trainer() is not trainer:
            check_reward_functions(trainer)
            self._trainer = weakref.ref(trainer)
        known = self._known if self._known is not None else self._read(trainer)
        chosen = self._choose(prompts, trainer, known)
        starts = [
            EpisodeStart(_messages(prompt), arguments, may_ignore)
            for prompt, (arguments, may_ignore, _) in zip(prompts, chosen, strict=True)
        ]
        template = dict(getattr(trainer, "chat_template_kwargs", None) or {})
        if getattr(trainer, "chat_template", None):
            template["chat_template"] = trainer.chat_template
        interface = self._player.sessions.interface
        chat = Chat(
            trainer.processing_class, interface, self._told, ends=_ends(trainer), **template
        )

        def play(generate: Callable[[list[list[int]]], Any]) -> list[TokenRollout]:
            most = trainer.max_completion_length
            try:
                return self._player.play(chat, starts, generate, max_tokens=most)
            except TaskNotTaken as error:
                raise TaskNotTaken(f"{error}. {COLUMNS_CURE}") from error

        def ask(sequences: list[list[int]]) -> tuple[Any, Any]:
            return _generate(trainer, sequences)

        accelerator = trainer.accelerator
        if accelerator.num_processes > 1:
            model = SharedModel(ask, gather_values, accelerator.process_index, _ends(trainer)[:1])
            played = model.run(lambda: play(model.generate))
        else:
            played = play(ask)
        self._compare(starts, played, accelerator.num_processes)
        rows = [_row(one, trainer) for one in played]
        found: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        if any(len(one.seeds) > 1 for one in known.values()):
            # TRL merges these over the columns of its own row, whose seed may differ.
            columns = [row for _, _, row in chosen]
            for name in dict.fromkeys(name for row in columns for name in row):
                found.setdefault(name, [row.get(name) for row in columns])
        if any(one is None for one in found["logprobs"]):
            found["logprobs"] = None  # then the trainer computes them
        return found

    def close(self) -> None:
        """Close every session; called at interpreter exit too."""
        self._player.close()

    # ------------------------------------------------------------------ choice of episodes

    def _choose(
        self, prompts: Sequence[Any], trainer: Any, known: Known
    ) -> list[tuple[dict[str, Any], frozenset[str], dict[str, Any]]]:
        """Return for each prompt the arguments of reset, those of them that the environment may
        ignore, and the columns of the row.
        """
        accelerator, of_each = trainer.accelerator, group_size(trainer)
        clock = clock_of(trainer)
        clock.begin(trainer, -(-len(prompts) * accelerator.num_processes // of_each))
        before = accelerator.process_index * len(prompts)
        chosen = []
        for i, prompt in enumerate(prompts):
            group = (before + i) // of_each
            episode = known.get(_key(prompt))
            if episode is None:
                raise ValueError(
                    f"no row of the dataset has the prompt {json.dumps(_messages(prompt))[:200]}; "
                    "pass the rows that the trainer has, of training and of evaluation: "
                    "rollout_func(..., rows=...)"
                )
            arguments, row = dict(episode.arguments), episode.rows[0]
            if episode.seeds:
                # Evaluations take the seeds in order. Training starts at an offset derived from the
                # batch, so that batches differ, and so do the groups of a batch.
                is_eval = clock.mode == "eval"
                offset = clock.groups if is_eval else clock.seed(self._seed, -1)
                place = (offset + group) % len(episode.seeds)
                arguments["seed"], row = episode.seeds[place], episode.rows[place]
            elif self._gives_seeds:
                arguments["seed"] = clock.seed(self._seed, group)
            chosen.append((arguments, episode.may_ignore, row))
        return chosen

    def _read(self, trainer: Any) -> Known:
        """Return the rows of the trainer's current dataset, training or evaluation; read once."""
        mode = mode_of(trainer)
        name = f"{mode}_dataset"
        dataset: Any = getattr(trainer, name, None)
        kept = self._of_dataset.get(mode)
        if kept is not None and kept[0] is dataset:
            return kept[1]
        parts: list[Any] = [*dataset.values()] if isinstance(dataset, Mapping) else [dataset]
        if any(part is None or not hasattr(part, "__len__") for part in parts):
            raise TrainingRefused(
                f"the trainer's {name} is {type(dataset).__name__}, whose rows cannot be read "
                "beside its prompts, so that nothing tells which episode a prompt is of; pass the "
                "rows: rollout_func(..., rows=[...])"
            )
        known = _by_prompt(
            (row for part in parts for row in part), self._columns, f"the trainer's {name}"
        )
        self._of_dataset[mode] = dataset, known
        return known

    def _compare(
        self, starts: Sequence[EpisodeStart], played: Sequence[TokenRollout], processes: int
    ) -> None:
        """Compare the first observations of each group's rollouts, on all processes."""
        seen = [
            (digest_of(start.arguments), str(rollout.messages[len(start.messages)]["content"]))
            for start, rollout in zip(starts, played, strict=True)
            if len(rollout.messages) > len(start.messages)  # the rollout has begun
        ]
        self._beginnings.forget()
        for its in gather_values(seen) if processes > 1 else [seen]:
            for arguments, shown in its:
                self._beginnings.saw(arguments, shown)


def _generate(trainer: Any, sequences: list[list[int]]) -> tuple[Any, Any]:
    generate = trainer._generate_single_turn
    if "num_generations" in inspect.signature(generate).parameters:
        replies, logprobs = generate(sequences, None, {}, 1)
        return replies, _plain(logprobs)
    # TRL before 1.14 reads the number from the trainer, and would take prompts for copies of each
    # other.
    kept = trainer.num_generations, trainer.num_generations_eval
    trainer.num_generations = trainer.num_generations_eval = 1
    try:
        replies, logprobs = generate(sequences, None, {})
    finally:
        trainer.num_generations, trainer.num_generations_eval = kept
    return replies, _plain(logprobs)


def _row(rollout: TokenRollout, trainer: Any) -> dict[str, Any]:
    """Return the columns of a rollout for TRL.

    A rollout without a reply gets one token, which is masked. A rollout without a reward is masked
    entirely.
    """
    score = rollout.score
    is_empty = not rollout.completion_ids
    end = _ends(trainer)[0]
    mask = [0] if is_empty else list(rollout.mask)
    logprobs = [0.0] if is_empty and rollout.logprobs is not None else rollout.logprobs
    if score.value is None:
        mask = [0] * len(mask)
    if logprobs is not None and (installed_trl() or WITH_NAN_LOGPROBS) < WITH_NAN_LOGPROBS:
        # In these versions NaN gets into the loss. Mask tokens with an unknown log-probability.
        mask = [0 if math.isnan(its) else one for one, its in zip(mask, logprobs, strict=True)]
        logprobs = [0.0 if math.isnan(its) else its for its in logprobs]
    return {
        "prompt_ids": rollout.prompt_ids,
        "completion_ids": [end] if is_empty else rollout.completion_ids,
        "logprobs": logprobs,
        "env_mask": mask,
        "env_reward": score.value,
        "env_unscored": score.unscored,
        "env_steps": rollout.steps,
        "env_messages": rollout.messages,
    }


def _plain(logprobs: Any) -> list[list[float]] | None:
    """Return one log-probability for each token, NaN if unknown. For each token TRL may give a list
    of the likeliest tokens, in which the sampled token is first.
    """
    if logprobs is None:
        return None
    likeliest = ((one[0] if isinstance(one, list) else one for one in its) for its in logprobs)
    return [[math.nan if one is None else float(one) for one in its] for its in likeliest]


def _ends(trainer: Any) -> list[int]:
    """Return the tokens that end a reply: first the tokenizer's, then the model's."""
    tokenizer = trainer.processing_class
    own = getattr(tokenizer, "eos_token_id", None)
    if own is None:  # an image processor has a `tokenizer` attribute
        own = getattr(getattr(tokenizer, "tokenizer", None), "eos_token_id", None)
    config = getattr(getattr(trainer, "model", None), "generation_config", None)
    found = [own, getattr(config, "eos_token_id", None)]
    ids = [one for its in found for one in (its if isinstance(its, list | tuple) else [its])]
    return list(dict.fromkeys(int(one) for one in ids if one is not None))


def _messages(prompt: Any) -> list[dict[str, Any]]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [
        {name: value for name, value in message.items() if value is not None} for message in prompt
    ]


def _key(prompt: Any) -> str:
    return json.dumps(_messages(prompt), sort_keys=True, default=str)


def _by_prompt(rows: Iterable[Mapping[str, Any]], columns: Columns | None, of: str) -> Known:
    """Return the episode of each prompt.

    Raises:
        ValueError: Two rows with the same prompt differ in more than their seeds, or the columns
            for reward functions are ambiguous; see `_check_clear`.
    """
    found: Known = {}
    seen: dict[str, dict[str, int]] = {}
    for number, row in enumerate(rows):
        arguments, may_ignore = episode_arguments(row, columns)
        seed = arguments.pop("seed", None)
        key = _key(row["prompt"])
        episode = found.setdefault(key, _PromptEpisode(arguments, may_ignore))
        if (episode.arguments, episode.may_ignore) != (arguments, may_ignore):
            before, missing = episode.arguments, object()
            differing = [
                repr(name)
                for name in sorted({*before, *arguments})
                if before.get(name, missing) != arguments.get(name, missing)
            ]
            raise ValueError(
                f"row {number} of {of} has the prompt of an earlier row, and another episode: "
                f"{', '.join(differing) or 'arguments that it may ignore'} differ. TRL hands over "
                "prompts only, so nothing tells which of the two is to be played. Give each row "
                "words of its own, or columns=[...] that leave out those columns, or use "
                "environment_factory"
            )
        beside = {name: value for name, value in row.items() if name not in OF_TRL | OF_BOTH}
        places = seen.setdefault(key, {})
        place = places.setdefault(str(seed), len(places))
        if place == len(episode.rows):
            episode.rows.append(beside)
            if seed is not None:
                episode.seeds.append(seed)
        else:
            first = episode.rows[place]
            episode.unclear |= {name for name in beside if first.get(name) != beside[name]}
    _check_clear(found.values(), of)
    return found


def _check_clear(episodes: Iterable[_PromptEpisode], of: str) -> None:
    """Refuse rows with ambiguous columns for reward functions.

    Raises:
        ValueError: Rows with the same prompt and seed differ, and groups are given seeds.
    """
    unclear = sorted({name for one in episodes for name in one.unclear})
    if unclear and any(len(one.seeds) > 1 for one in episodes):
        raise ValueError(
            f"{of} has rows with the same prompt and seed that differ in "
            f"{', '.join(map(repr, unclear))}, and other rows of one prompt differ in their seeds. "
            "Each group is given one of the seeds, so nothing tells which of the columns a reward "
            "function is to get. Give each row words of its own, or use environment_factory"
        )
