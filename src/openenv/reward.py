"""Rewards: meaning, components and transport.

A number alone says neither what it counts nor whether it could be computed. So the reward of a step
is sent with its details (`Score`): components by name, which add up to the reward; or, if the
reward is None, the reason. The first observation of an episode is sent with the meaning of all its
rewards, which the environment's class declares:

    class MyEnvironment(Environment[MyAction, MyObservation, State]):
        REWARD = RewardSpec("terminal", range=(0.0, 1.0), components=("correct", "format"))

In protocol version 1 these details are the field ``reward_info`` of an observation frame. Version 0
has no such field, and carries them in ``metadata["reward_info"]`` in the same form:

    {"spec": {"kind": "terminal", "range": [0.0, 1.0], "components": ["correct", "format"]}}
    {"components": {"correct": 0.8, "format": 0.2}}
    {"unscored": "the judge did not answer within 30 s"}
    {"step_rewards": [0.25, 0.5, 1.0]}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

__all__ = ["REWARD_INFO", "RewardKind", "RewardSpec", "Score", "adds_up", "components_of"]

REWARD_INFO = "reward_info"
"""The key of ``metadata`` under which an observation holds the details of its reward."""

RewardKind = Literal["per_step", "cumulative", "terminal"]

# Tolerances between a reward and the sum of its components, for rounding errors.
RELATIVE, ABSOLUTE = 1e-6, 1e-9


def adds_up(value: float, components: Mapping[str, float]) -> bool:
    """Return whether components add up to a reward, within rounding errors."""
    total = math.fsum(components.values())
    scale = max((abs(part) for part in components.values()), default=0.0)
    return math.isclose(value, total, rel_tol=RELATIVE, abs_tol=max(ABSOLUTE, RELATIVE * scale))


def components_of(rubric: Any) -> Mapping[str, float]:
    """Return the components of a rubric's last score, read from the method `components`.

    The result is empty if the rubric uses that name for something else, such as a list of rubrics
    in an older program.
    """
    method = getattr(type(rubric), "components", None)
    if not callable(method) or "components" in getattr(rubric, "__dict__", {}):
        return {}
    parts = rubric.components()
    return parts if isinstance(parts, Mapping) else {}


@dataclass(frozen=True)
class RewardSpec:
    """The meaning of an environment's rewards.

    Attributes:
        kind: What a step's reward means, and how the episode's reward follows from it:

            - ``per_step``: the step's own reward. The episode's reward is the sum.
            - ``cumulative``: the reward of the episode so far. The episode's reward is the last.
            - ``terminal``: the reward of the whole episode, given by its last step. Earlier steps
              have None or 0. The episode's reward is the last.
        range: Lowest and highest value of one reward; None if unknown.
        components: Names of the components that a reward may have; empty if unknown.
        unfinished: Reward that is added to the earned reward of an unfinished episode; None means
            0. An environment that gives rewards in every step, but most of them at the end, sets
            this to the reward of losing: otherwise giving up would pay more than losing. Kind
            ``terminal`` does not need it, since an unfinished episode has earned nothing.

    Raises:
        ValueError: The kind is unknown, a number is not finite, or the range is empty.

    Example:
        >>> from openenv import RewardSpec
        >>> RewardSpec("per_step").total([0.5, None, 1.0])
        1.5
        >>> RewardSpec("terminal", range=(0.0, 1.0)).total([None, 0.0, 1.0])
        1.0
    """

    kind: RewardKind = "per_step"
    range: tuple[float, float] | None = None
    components: tuple[str, ...] = ()
    unfinished: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(RewardKind):
            known = ", ".join(get_args(RewardKind))
            raise ValueError(f"kind={self.kind!r} of a reward; expected one of {known}")
        if self.range is not None:
            low, high = self.range
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise ValueError(f"range={self.range} of a reward; expected finite low <= high")
            object.__setattr__(self, "range", (float(low), float(high)))
        if self.unfinished is not None and not math.isfinite(self.unfinished):
            raise ValueError(f"unfinished={self.unfinished} of a reward; expected a finite number")
        object.__setattr__(self, "components", tuple(self.components))

    def as_data(self) -> dict[str, Any]:
        """Return the specification as JSON."""
        data: dict[str, Any] = {
            "kind": self.kind,
            "range": None if self.range is None else list(self.range),
            "components": list(self.components),
        }
        return data if self.unfinished is None else {**data, "unfinished": self.unfinished}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> RewardSpec:
        """Create a specification from the JSON of `as_data`; unknown keys are ignored.

        Raises:
            ValueError: `data` is not a valid specification.
        """
        try:
            found = data.get("range")
            low_high = None if found is None else tuple(found)
            parts = tuple(data.get("components") or ())
            return cls(data.get("kind", "per_step"), low_high, parts, data.get("unfinished"))
        except (TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{data!r:.200} says nothing of rewards: {error}") from error

    def total(
        self, rewards: Sequence[float | None], unscored: Sequence[str | None] = ()
    ) -> float | None:
        """Return the reward of an episode, computed from the rewards of the steps in order.

        Args:
            rewards: Reward of each step; None for a step without a reward.
            unscored: For each step, the reason why it could not be scored; None if it could.
                Default: no step has a reason.

        Returns:
            The sum of the rewards, or the last reward, depending on the kind. None if a step that
            counts could not be scored, or if there is no reward at all: the reward of such an
            episode is unknown, not 0.
        """
        if self.kind == "per_step":
            scored = [reward for reward in rewards if reward is not None]
            return None if any(unscored) or not scored else math.fsum(scored)
        if unscored and unscored[-1]:
            return None
        return next((reward for reward in reversed(rewards) if reward is not None), None)


@dataclass(frozen=True)
class Score:
    """The reward of a step or an episode, with details.

    Attributes:
        value: The reward, a finite number; None without a reward.
        components: Components by name, which add up to the reward.
        unscored: Reason why a reward is missing, for example a failure of the grader.
        step_rewards: The share of each step, in order, if the episode was scored as a whole; see
            `openenv.rewards.credit`.

    Raises:
        ValueError: The value or a share is not finite, the value and `unscored` are both given, or
            the components do not add up to the value.

    Example:
        >>> from openenv import Score
        >>> Score(0.8, components={"correct": 1.0, "length": -0.2}).value
        0.8
        >>> Score(unscored="the judge did not answer").value is None
        True
    """

    value: float | None = None
    components: Mapping[str, float] = field(default_factory=dict)
    unscored: str | None = None
    step_rewards: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.step_rewards is not None:
            shares = [float(share) for share in self.step_rewards]
            if not all(map(math.isfinite, shares)):
                raise ValueError(f"the rewards of steps must be finite: {shares}")
            object.__setattr__(self, "step_rewards", shares)
        if self.value is None:
            if self.components:
                raise ValueError(f"components {dict(self.components)} of a reward that is None")
            return
        if self.unscored:
            raise ValueError(f"value={self.value} and unscored={self.unscored!r}: give one of them")
        if not math.isfinite(self.value):
            raise ValueError(f"a reward must be finite, not {self.value}")
        # JSON cannot encode NumPy and PyTorch numbers.
        if type(self.value) not in (bool, int, float):
            object.__setattr__(self, "value", float(self.value))
        parts = {name: float(part) for name, part in self.components.items()}
        object.__setattr__(self, "components", parts)
        if self.components and not adds_up(self.value, self.components):
            total = math.fsum(self.components.values())
            raise ValueError(
                f"the components {dict(self.components)} add up to {total}, and the reward is "
                f"{self.value}"
            )

    def as_info(self) -> dict[str, Any]:
        """Return the details beside the reward; empty if there are none."""
        info: dict[str, Any] = {}
        if self.components:
            info["components"] = dict(self.components)
        if self.unscored:
            info["unscored"] = self.unscored
        if self.step_rewards is not None:
            info["step_rewards"] = list(self.step_rewards)
        return info
