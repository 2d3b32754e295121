"""TRL's `rollout_func` for any environment: all rollouts of a batch act at the same time.

TRL's own loop, of `environment_factory`, carries out one call after the other. Where a step takes
its time (a sandbox, a browser, a server far away) that is what a training step takes. Here the
model replies to all rollouts of a batch, then all their environments step at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from openenv.client import background
from openenv.integrations.trl.environments import Columns, episode_arguments
from openenv.rollouts.jobs import derived_seed
from openenv.rollouts.meter import Meter
from openenv.rollouts.seats import Seat, Seats, Unfinished
from openenv.rollouts.tokens import Chat, TokenRollout, act_together

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

    Raises:
        OpenEnvError: The environment cannot be reached, or does not tell how one acts in it.
        TypeError: It is no environment.
        ValueError: Two rows have one prompt, and are different otherwise; `at_once` is not
            positive.
    """
    if at_once is not None and at_once < 1:
        raise ValueError(f"at_once={at_once}; expected at least 1")
    known = None if rows is None else _by_prompt(rows, columns)
    seats = background.run(Seats.of(environment, retries=retries))
    return RolloutFunc(seats, known, at_once, max_turns, unfinished, told, seed)


Reset = tuple[dict[str, Any], frozenset[str]]


class RolloutFunc:
    """What `rollout_func` makes.

    Attributes:
        meter: What the environments have cost.
    """

    def __init__(
        self,
        seats: Seats,
        known: Mapping[str, Reset] | None,
        at_once: int | None,
        max_turns: int,
        unfinished: Unfinished,
        told: Any,
        seed: int,
    ) -> None:
        self.meter: Meter = seats.meter
        self._seats = seats
        self._known = known
        self._at_once = at_once
        self._max_turns = max_turns
        self._unfinished: Unfinished = unfinished
        self._told = told
        self._seed = seed
        self._places: list[Seat] = []

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """Play a rollout for each prompt.

        Raises:
            CapacityError: There is not room for as many as are played at once.
            OpenEnvError: The environment cannot be reset so.
            ValueError: A prompt is none of the rows'.
        """
        messages = [_messages(prompt) for prompt in prompts]
        resets = self._resets(prompts, trainer)
        size = self._at_once or len(prompts)
        if len(self._places) < min(size, len(prompts)):
            self._places = background.run(self._grown(min(size, len(prompts))))
        chat = Chat(
            trainer.processing_class,
            self._seats.interface,
            self._told,
            **_template(trainer),
        )
        played: list[dict[str, Any]] = []
        for at in range(0, len(prompts), size):
            wave = [
                TokenRollout(
                    seat,
                    chat,
                    max_turns=self._max_turns,
                    max_tokens=trainer.max_completion_length,
                    unfinished=self._unfinished,
                )
                for seat, _ in zip(self._places, prompts[at : at + size], strict=False)
            ]
            self._play(wave, messages[at : at + size], resets[at : at + size], trainer)
            played += [_row(one, trainer) for one in wave]
        found: dict[str, Any] = {name: [row[name] for row in played] for name in played[0]}
        if any(one is None for one in found["logprobs"]):
            found["logprobs"] = None  # the trainer computes them
        return found

    def close(self) -> None:
        """Give back every session; a program that ends does so too."""
        background.run(self._seats.aclose())

    # ------------------------------------------------------------------ a wave

    def _play(
        self,
        wave: list[TokenRollout],
        messages: Sequence[list[dict[str, Any]]],
        resets: Sequence[Reset],
        trainer: Any,
    ) -> None:
        live = background.run(_begun(wave, messages, resets))
        while live:
            replies, logprobs = trainer._generate_single_turn(
                [one.ids for one in live], None, {}, 1
            )
            live = background.run(act_together(live, replies, _plain(logprobs)))

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

    async def _grown(self, size: int) -> list[Seat]:
        return [*self._places, *[await self._seats.take() for _ in range(len(self._places), size)]]


async def _begun(
    wave: Sequence[TokenRollout],
    messages: Sequence[list[dict[str, Any]]],
    resets: Sequence[Reset],
) -> list[TokenRollout]:
    begun = await asyncio.gather(
        *(
            one.begin(said, arguments, may_ignore)
            for one, said, (arguments, may_ignore) in zip(wave, messages, resets, strict=True)
        )
    )
    return [one for one, goes_on in zip(wave, begun, strict=True) if goes_on]


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
