"""TRL's `rollout_func` for any environment: all rollouts of a batch act at the same time.

TRL's own loop, of `environment_factory`, carries out one call after the other. Where a step takes
its time (a sandbox, a browser, a server far away) that is what a training step takes. Here the
model replies to all rollouts of a batch, then all their environments step at once.
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

    Beside the tokens, it gives ``env_mask``, which is 0 for the tokens that the model did not
    write; and the columns ``env_reward``, ``env_unscored``, ``env_steps`` and ``env_messages``. A
    rollout that has no reward is masked as a whole, and counts nowhere.

    TRL hands over prompts only, and by its prompt a row of the dataset is found again, whose
    columns the environment is reset with. Rows of one prompt may differ by their ``seed`` alone:
    each group is given one of the seeds, in an evaluation one after the other, and reward functions
    then get the columns of the row with that seed, in place of the row that TRL took. Where there
    are no
    seeds, one follows from the trainer's step, the batch and the group, so that it is the same
    after resuming. What the environment shows first is compared within each group.

    Where there are several processes they ask the model together, so that each gets the replies to
    its own rollouts.

    Args:
        environment: As `openenv.rollout` takes it.
        rows: The rows of the dataset. Default: the trainer's, of training or of evaluation.
        columns: The columns to use; see `environment_factory`.
        at_once: How many rollouts are played at the same time, each in a session of its own.
            Default: a whole batch.
        max_turns: Maximum number of replies.
        unfinished: Reward of an episode that the model has not brought to an end.
        told: How the model is told how to act: ``tools``, ``json`` or ``text``; see
            `openenv.rollouts.tokens.Chat`.
        seed: The seed from which the seeds of groups are derived.
        retries: Further attempts at a reset whose failure may pass.
        failures_in_a_row: After how many failed rollouts in a row training ends; None never.
        shows: The fields of observations that the model is shown, in this order. Default: all that
            are public.
        equal_beginnings: Give seeds where the dataset has none, and raise `UnequalBeginnings` if
            two rollouts of a group begin differently. False leaves beginnings to chance.

    Raises:
        NotSupported: The version of TRL that is installed is too old for this.
        OpenEnvError: The environment cannot be reached, or does not tell how one acts in it.
        TypeError: `environment` is no environment.
        ValueError: Two rows have one prompt, and differ by more than their seeds; `at_once` is not
            positive; observations have no field of a name in `shows`.
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
        seeds: The seeds of the rows in order.
        rows: The columns for reward functions of the row with each seed.
        unclear: Columns in which two rows with the same prompt and seed differ.
    """

    arguments: dict[str, Any]
    may_ignore: frozenset[str]
    seeds: list[Any] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    unclear: set[str] = field(default_factory=set)


Known = dict[str, _PromptEpisode]


class RolloutFunc:
    """A rollout function for TRL. Made by `rollout_func`."""

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
            CapacityError: There is not room for as many as are played at once.
            EnvironmentsFailing: Too many rollouts in a row have failed.
            OpenEnvError: The environment cannot be reset so.
            TrainingRefused: A reward function would count failed rollouts; or the trainer has no
                dataset that can be read.
            UnequalBeginnings: Two rollouts of a group have begun differently.
            ValueError: A prompt is none of the rows'.
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
            # TRL merges them over the columns of its own row, whose seed may be another.
            columns = [row for _, _, row in chosen]
            for name in dict.fromkeys(name for row in columns for name in row):
                found.setdefault(name, [row.get(name) for row in columns])
        if any(one is None for one in found["logprobs"]):
            found["logprobs"] = None  # the trainer computes them
        return found

    def close(self) -> None:
        """Close every session; also done at the end of the program."""
        self._player.close()

    # ------------------------------------------------------------------ which episodes

    def _choose(
        self, prompts: Sequence[Any], trainer: Any, known: Known
    ) -> list[tuple[dict[str, Any], frozenset[str], dict[str, Any]]]:
        """Return for each prompt the arguments of reset, those that the environment may ignore, and
        the columns of the row.
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
                # In turn in an evaluation; in training from an offset that follows from the batch,
                # so that the groups of a batch differ.
                is_eval = clock.mode == "eval"
                offset = clock.groups if is_eval else clock.seed(self._seed, -1)
                place = (offset + group) % len(episode.seeds)
                arguments["seed"], row = episode.seeds[place], episode.rows[place]
            elif self._gives_seeds:
                arguments["seed"] = clock.seed(self._seed, group)
            chosen.append((arguments, episode.may_ignore, row))
        return chosen

    def _read(self, trainer: Any) -> Known:
        """Read the rows of the dataset that the trainer takes prompts from now; read once."""
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
        """Compare what the rollouts of each group were shown first, on all processes."""
        seen = [
            (digest_of(start.arguments), str(rollout.messages[len(start.messages)]["content"]))
            for start, rollout in zip(starts, played, strict=True)
            if len(rollout.messages) > len(start.messages)  # it has begun
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
    # TRL before 1.14 has the number from itself, and would take prompts for copies of each other.
    kept = trainer.num_generations, trainer.num_generations_eval
    trainer.num_generations = trainer.num_generations_eval = 1
    try:
        replies, logprobs = generate(sequences, None, {})
    finally:
        trainer.num_generations, trainer.num_generations_eval = kept
    return replies, _plain(logprobs)


def _row(rollout: TokenRollout, trainer: Any) -> dict[str, Any]:
    """Return the columns of a rollout for TRL.

    One without a reply has a token that is not trained on. One without a reward has none that is.
    """
    score = rollout.score
    is_empty = not rollout.completion_ids
    end = _ends(trainer)[0]
    mask = [0] if is_empty else list(rollout.mask)
    logprobs = [0.0] if is_empty and rollout.logprobs is not None else rollout.logprobs
    if score.value is None:
        mask = [0] * len(mask)
    if logprobs is not None and (installed_trl() or WITH_NAN_LOGPROBS) < WITH_NAN_LOGPROBS:
        # There NaN would be the loss. A token whose log-probability is unknown is not trained on.
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
    """Return a number for each token: TRL lists the likeliest tokens, the sampled token first; an
    unknown log-probability is NaN.
    """
    if logprobs is None:
        return None
    likeliest = ((one[0] if isinstance(one, list) else one for one in its) for its in logprobs)
    return [[math.nan if one is None else float(one) for one in its] for its in likeliest]


def _ends(trainer: Any) -> list[int]:
    """Return the tokens that end a reply: the tokenizer's first, then the model's."""
    tokenizer = trainer.processing_class
    own = getattr(tokenizer, "eos_token_id", None)
    if own is None:  # a processor of images has its tokenizer inside
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
        ValueError: Two rows have one prompt, and differ by more than their seeds; or nothing tells
            which columns a reward function is to get.
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
    """Refuse rows of which nothing tells which columns a reward function is to get.

    Raises:
        ValueError: There are such rows.
    """
    unclear = sorted({name for one in episodes for name in one.unclear})
    if unclear and any(len(one.seeds) > 1 for one in episodes):
        raise ValueError(
            f"{of} has rows with the same prompt and seed that differ in "
            f"{', '.join(map(repr, unclear))}, and other rows of one prompt differ in their seeds. "
            "Each group is given one of the seeds, so nothing tells which of the columns a reward "
            "function is to get. Give each row words of its own, or use environment_factory"
        )
