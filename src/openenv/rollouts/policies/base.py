"""The contract of policies: choose the next action from what was observed.

The plainest one is a function, plain or ``async def``:

    def policy(observation):
        return {"message": "hello"}

It may name further fields of `PolicyTurn`, as in ``def policy(observation, task)``; or take the
whole turn: ``def policy(turn)``.

A class with a method `act` is made anew for each episode, so that it may remember:

    class Patient:
        def reset(self, task): ...         # optional; takes fields of `EpisodeOpening` by name
        def act(self, observation): ...

An object with `act`, but without `reset`, is shared by all episodes that are played at once. What a
policy returns is the action, or a `Decision`, which tells how it came about.

`Policy` and `PolicyPlayer` are the contract that all of these are brought to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from openenv.errors import OpenEnvError

if TYPE_CHECKING:
    from openenv.rollouts.interfaces import Interface


class PolicyError(OpenEnvError, ValueError):
    """The policy does not exist or cannot be used so; the text says what was expected."""


class PolicyStopped(OpenEnvError):
    """The policy has nothing more to do: the episode ends as `stopped`.

    Attributes:
        ends_run: Whether the policy plays no other episodes either.
    """

    def __init__(self, why: str = "the policy has stopped", *, ends_run: bool = False) -> None:
        self.ends_run = ends_run
        super().__init__(why)


@dataclass
class EpisodeOpening:
    """The information that a policy has at the beginning of an episode.

    Attributes:
        task: The task, as agents see it; None without one.
        seed: Of the policy's own choices: another one in each rollout, and the same one in the same
            rollout of the same run.
        rollout_id: The id of the rollout.
        interface: The environment's interface; None unless the policy asks for it.
    """

    task: dict[str, Any] | None = None
    seed: int = 0
    rollout_id: str = ""
    interface: Interface | None = None


@dataclass
class PolicyTurn:
    """The information that a policy has for the next action.

    Attributes:
        observation: The latest observation: the client's model, or a dictionary.
        step: The number of steps taken so far.
        task: The task, as agents see it; None without one.
        result: The whole last `StepResult`.
        history: (action, observation) of each step so far.
        refusal: Reason why the last action was not taken; None if taken.
        seconds_left: Seconds that are left of the limit; None without a limit.
        tokens_left: Tokens that are left of the limit; None without a limit.
    """

    observation: Any
    step: int = 0
    task: dict[str, Any] | None = None
    result: Any = None
    history: list[tuple[Any, Any]] = field(default_factory=list)
    refusal: str | None = None
    seconds_left: float | None = None
    tokens_left: int | None = None


@dataclass
class Decision:
    """An action with the record of the choice.

    Attributes:
        action: A model of the environment's, or a mapping of its fields.
        record: What is kept of it, as JSON has it: the text, say; `prompt_token_ids`,
            `completion_token_ids` and `logprobs`, of which a trainer makes its batch.
        model_calls: Number of model calls.
        prompt_tokens: Number of prompt tokens read.
        completion_tokens: Number of completion tokens written.
    """

    action: Any
    record: Mapping[str, Any] = field(default_factory=dict)
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class InvalidReply(OpenEnvError, ValueError):
    """The policy's reply is no action; the policy is asked again with this text as `refusal`.

    Attributes:
        decision: The costs, with the invalid action.
    """

    def __init__(self, why: str, decision: Decision | None = None) -> None:
        self.decision = decision or Decision(None)
        super().__init__(why)


class PolicyPlayer(Protocol):
    """A policy in an episode. A player may have `messages`: a conversation in OpenAI's form."""

    def act(self, turn: PolicyTurn) -> Decision | Awaitable[Decision]:
        """Choose an action.

        Raises:
            InvalidReply: The reply is no action; the player may be asked again.
            PolicyStopped: The player has nothing more to do.
            Exception: The attempt has failed. One of a passing cause is made anew: see
                `openenv.rollouts.failures`.
        """
        ...


class Policy(Protocol):
    """Plays episodes, many at once.

    Attributes:
        name: The name in records.
        needs_interface: Whether the policy needs the environment's interface.
        wants_refusals: An action that the environment refuses is no failure: it is asked again.

    One that can play only so many episodes at once says so by `max_concurrency`.
    """

    name: str
    needs_interface: bool
    wants_refusals: bool

    def begin(self, opening: EpisodeOpening) -> PolicyPlayer | Awaitable[PolicyPlayer]:
        """Begin an episode."""
        ...

    def aclose(self) -> Awaitable[None]:
        """Release what the policy holds. Safe to repeat."""
        ...
