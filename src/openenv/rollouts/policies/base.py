"""The interface of policies: choose the next action from what was observed.

The simplest policy is a function, plain or ``async def``:

    def policy(observation):
        return {"message": "hello"}

A function may take further fields of `PolicyTurn` by name, as in ``def policy(observation, task)``,
or the whole turn: ``def policy(turn)``.

A class with a method `act` is instantiated for each episode, so that it may keep state:

    class Patient:
        def reset(self, task): ...         # optional; takes fields of `EpisodeOpening` by name
        def act(self, observation): ...

An object with `act` but without `reset` is shared by all episodes that are played at once. A policy
returns the action, or a `Decision`, which also records how the action was chosen.

`Policy` and `PolicyPlayer` are the interface to which all of these are adapted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from openenv.errors import OpenEnvError

if TYPE_CHECKING:
    from openenv.rollouts.interfaces import Interface


class PolicyError(OpenEnvError, ValueError):
    """The policy does not exist or cannot be used this way; the message says what was expected."""


class PolicyStopped(OpenEnvError):
    """The policy has nothing more to do: the episode ends as `stopped`.

    Attributes:
        ends_run: True if the policy plays no further episodes either.
    """

    def __init__(self, why: str = "the policy has stopped", *, ends_run: bool = False) -> None:
        self.ends_run = ends_run
        super().__init__(why)


@dataclass
class EpisodeOpening:
    """The information that a policy has at the beginning of an episode.

    Attributes:
        task: The task, as agents see it; None if there is none.
        seed: Seed for the policy's own choices: different in each rollout, and derived from the
            run's seed.
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
        task: The task, as agents see it; None if there is none.
        result: The whole last `StepResult`.
        history: (action, observation) of each step so far.
        refusal: Reason why the last action was refused; None if it was accepted.
        seconds_left: Seconds left of the time limit; None without a limit.
        tokens_left: Tokens left of the limit; None without a limit.
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
    """An action, with a record of how it was chosen.

    Attributes:
        action: An action model of the environment, or a mapping of its fields.
        record: Data for the rollout's record, with JSON types, such as the text. Trainers read
            `prompt_token_ids`, `completion_token_ids` and `logprobs`.
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
    """The policy's reply is not an action; the policy is asked again with this text as `refusal`.

    Attributes:
        decision: The costs of the reply; its action is None or the invalid action.
    """

    def __init__(self, why: str, decision: Decision | None = None) -> None:
        self.decision = decision or Decision(None)
        super().__init__(why)


class PolicyPlayer(Protocol):
    """A policy in an episode. It may have `messages`: a conversation in OpenAI's format."""

    def act(self, turn: PolicyTurn) -> Decision | Awaitable[Decision]:
        """Choose an action.

        Raises:
            InvalidReply: The reply is not an action; the player may be asked again.
            PolicyStopped: The player has nothing more to do.
            Exception: The attempt has failed. After a passing failure it is retried; see
                `openenv.rollouts.failures`.
        """
        ...


class Policy(Protocol):
    """Plays episodes, many at once.

    Attributes:
        name: The name in records.
        needs_interface: True if the policy needs the environment's interface.
        wants_refusals: True if the policy is asked again after the environment refuses its action.
            If False, a refused action is a failure.

    The optional attribute `max_concurrency` limits the number of episodes at once.
    """

    name: str
    needs_interface: bool
    wants_refusals: bool

    def begin(self, opening: EpisodeOpening) -> PolicyPlayer | Awaitable[PolicyPlayer]:
        """Begin an episode."""
        ...

    def aclose(self) -> Awaitable[None]:
        """Release the resources of the policy. Idempotent."""
        ...
