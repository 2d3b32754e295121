"""TRL's `rollout_func` for any environment: all rollouts of a batch act at the same time.

TRL's own loop, of `environment_factory`, carries out one call after the other. Where a step takes
its time (a sandbox, a browser, a server far away) that is what a training step takes. Here the
model replies to all rollouts of a batch, then all their environments step at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from openenv.integrations.trl.environments import Columns, episode_arguments
from openenv.rollouts.batched import BatchPlayer, Start
from openenv.rollouts.jobs import derived_seed
from openenv.rollouts.meter import Meter
from openenv.rollouts.seats import Unfinished
from openenv.rollouts.tokens import Chat, TokenRollout

__all__ = ["RolloutFunc", "env_reward", "rollout_func"]


def env_reward(env_reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """A reward function for TRL: what `rollout_func` says that the environment gave.

    Args:
        env_reward: Of each rollout; None where it has none, and TRL leaves it out.
    """
    return list(env_reward)


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
) -> RolloutFunc:
    """Make a ``rollout_func`` of TRL's GRPOTrainer; use it with `env_reward`.

        rollouts = rollout_func("blackjack")
        GRPOTrainer(..., rollout_func=rollouts, reward_funcs=env_reward)

    Beside the tokens, it gives ``env_mask``, which is 0 for the tokens that the model did not
    write; and the columns ``env_reward``, ``env_unscored`` and ``env_steps``.

    Args:
        environment: As `openenv.rollout` takes it.
        rows: The dataset: TRL hands over prompts only, and by its prompt the row is found again
            whose columns the environment is reset with. Without, each group of rollouts has a seed
            of its own.
        columns: Which columns; see `environment_factory`.
        at_once: How many rollouts are played at the same time, each in a session of its own.
            Default: a whole batch.
        max_turns: How many replies the model may have.
        unfinished: What an episode is worth that the model has not brought to its end.
        told: How the model is told how to act: ``tools``, ``json`` or ``text``; see
            `openenv.rollouts.tokens.Chat`.
        seed: What the seeds of groups follow from.
        retries: How often a reset is tried again whose failure may pass.
        failures_in_a_row: After how many failed rollouts in a row training ends; None never.
        shows: The fields of observations that the model is shown, in this order. Default: all that
            are public.

    Raises:
        OpenEnvError: The environment cannot be reached, or does not tell how one acts in it.
        TypeError: It is no environment.
        ValueError: Two rows have one prompt, and are different otherwise; `at_once` is not
            positive; observations have no field of a name in `shows`.
    """
    known = None if rows is None else _by_prompt(rows, columns)
    player = BatchPlayer(
        environment,
        at_once=at_once,
        max_turns=max_turns,
        unfinished=unfinished,
        retries=retries,
        failures_in_a_row=failures_in_a_row,
        shows=shows,
    )
    return RolloutFunc(player, known, told, seed)


Reset = tuple[dict[str, Any], frozenset[str]]


class RolloutFunc:
    """What `rollout_func` makes.

    Attributes:
        meter: What the environments have cost.
    """

    def __init__(
        self, player: BatchPlayer, known: Mapping[str, Reset] | None, told: Any, seed: int
    ) -> None:
        self.meter: Meter = player.meter
        self._player = player
        self._known = known
        self._told = told
        self._seed = seed

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """Play a rollout for each prompt.

        Raises:
            CapacityError: There is not room for as many as are played at once.
            EnvironmentsFailing: As too many did.
            OpenEnvError: The environment cannot be reset so.
            ValueError: A prompt is none of the rows'.
        """

        def generate(sequences: list[list[int]]) -> tuple[Any, Any]:
            replies, logprobs = trainer._generate_single_turn(sequences, None, {}, 1)
            return replies, _plain(logprobs)

        starts = [
            Start(_messages(prompt), *reset)
            for prompt, reset in zip(prompts, self._resets(prompts, trainer), strict=True)
        ]
        interface = self._player.seats.interface
        chat = Chat(trainer.processing_class, interface, self._told, **_template(trainer))
        most = trainer.max_completion_length
        played = [
            _row(one, trainer) for one in self._player.play(chat, starts, generate, max_tokens=most)
        ]
        found: dict[str, Any] = {name: [row[name] for row in played] for name in played[0]}
        if any(one is None for one in found["logprobs"]):
            found["logprobs"] = None  # the trainer computes them
        return found

    def close(self) -> None:
        """Give back every session; a program that ends does so too."""
        self._player.close()

    def _resets(self, prompts: Sequence[Any], trainer: Any) -> list[Reset]:
        if self._known is not None:
            return [self._reset_of(prompt) for prompt in prompts]
        is_training = trainer.model.training
        of_group = trainer.num_generations if is_training else trainer.num_generations_eval
        before = trainer.accelerator.process_index * len(prompts)
        where = ["train" if is_training else "eval", trainer.state.global_step]
        seeds = [
            derived_seed(self._seed, *where, (before + i) // of_group) for i in range(len(prompts))
        ]
        return [({"seed": one}, frozenset()) for one in seeds]

    def _reset_of(self, prompt: Any) -> Reset:
        assert self._known is not None
        found = self._known.get(_key(prompt))
        if found is None:
            raise ValueError(
                f"no row of `rows` has the prompt {json.dumps(_messages(prompt))[:200]}; pass the "
                "dataset that the trainer has, of training and of evaluation"
            )
        return found


def _row(rollout: TokenRollout, trainer: Any) -> dict[str, Any]:
    """A rollout, as TRL takes it: one without a reply has a token that is not trained on."""
    score = rollout.score
    is_empty = not rollout.completion_ids
    end = trainer.processing_class.eos_token_id
    return {
        "prompt_ids": rollout.prompt_ids,
        "completion_ids": [end] if is_empty else rollout.completion_ids,
        "logprobs": [0.0] if is_empty and rollout.logprobs is not None else rollout.logprobs,
        "env_mask": [0] if is_empty else rollout.mask,
        "env_reward": score.value,
        "env_unscored": score.unscored,
        "env_steps": rollout.steps,
    }


def _plain(logprobs: Any) -> list[list[float]] | None:
    """Of each token, one number: TRL has a list of the likeliest there, its own first."""
    if logprobs is None:
        return None
    return [[float(one[0] if isinstance(one, list) else one) for one in its] for its in logprobs]


def _template(trainer: Any) -> dict[str, Any]:
    options = dict(getattr(trainer, "chat_template_kwargs", None) or {})
    if getattr(trainer, "chat_template", None):
        options["chat_template"] = trainer.chat_template
    return options


def _messages(prompt: Any) -> list[dict[str, Any]]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [
        {name: value for name, value in message.items() if value is not None} for message in prompt
    ]


def _key(prompt: Any) -> str:
    return json.dumps(_messages(prompt), sort_keys=True, default=str)


def _by_prompt(rows: Iterable[Mapping[str, Any]], columns: Columns | None) -> dict[str, Reset]:
    found: dict[str, Reset] = {}
    for number, row in enumerate(rows):
        reset = episode_arguments(row, columns)
        if found.setdefault(_key(row["prompt"]), reset) != reset:
            raise ValueError(
                f"row {number} has the prompt of an earlier row, and another episode; TRL hands "
                "over prompts only: give each row words of its own, or leave `rows` out, so that "
                "groups differ by their seeds"
            )
    return found
