"""Rubrics made of rubrics."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from openenv.errors import InvalidReturnError
from openenv.rewards.rubric import NO_PARTS, Rubric, Steps, carry_out, is_pending, waited

__all__ = ["Gate", "RubricDict", "RubricList", "Sequential", "WeightedSum"]

WEIGHTS_TOLERANCE = 1e-6

Scored = tuple[float, Mapping[str, float]]
"""A score, and its parts by name."""


class _Listed(Rubric):
    """Has children in an order, named ``rubric_0``, ``rubric_1`` and so on."""

    def __init__(self, rubrics: Iterable[Rubric]) -> None:
        super().__init__()
        self._names: list[str] = []
        for rubric in rubrics:
            self._add(rubric)

    def _add(self, rubric: Rubric) -> None:
        name = f"rubric_{len(self._names)}"
        setattr(self, name, _rubric(rubric))
        self._names.append(name)

    @property
    def _rubric_list(self) -> list[Rubric]:
        return [self._rubric_children[name] for name in self._names]

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: Any) -> Any:
        return self._rubric_list[index]

    def __iter__(self) -> Iterator[Rubric]:
        return iter(self._rubric_list)


class Sequential(_Listed):
    """Scores with one rubric after another, and stops at the first that gives 0.

    Its score is that of the last; 0.0 where it was stopped, and 1.0 where it has none. Its
    components are those of the last rubric.
    """

    def __init__(self, *rubrics: Rubric) -> None:
        super().__init__(rubrics)

    def forward(self, action: Any, observation: Any) -> Any:
        return carry_out(self._scoring(action, observation))

    def _scoring(self, action: Any, observation: Any) -> Steps[float]:
        score: float = 1.0
        parts: Mapping[str, float] = NO_PARTS
        for left, child in zip(range(len(self) - 1, -1, -1), self, strict=True):
            outcome = yield from waited(child(action, observation))
            score, parts = _scored(child, outcome)
            if score == 0 and left:
                score, parts = 0.0, dict.fromkeys(self._part_names(), 0.0)
                break
        self._parts = parts
        return score

    def _part_names(self) -> list[str]:
        return self._rubric_list[-1]._part_names() if self._rubric_list else [""]

    @property
    def _label(self) -> str:
        return self._rubric_list[-1]._label if self._rubric_list else super()._label


class Gate(Rubric):
    """Lets a score pass that is at least the threshold; any other becomes 0.

    Args:
        rubric: What scores.
        threshold: The least score that passes.
    """

    def __init__(self, rubric: Rubric, threshold: float = 1.0) -> None:
        super().__init__()
        self.rubric = _rubric(rubric)
        self.threshold = threshold

    def forward(self, action: Any, observation: Any) -> Any:
        return carry_out(self._scoring(action, observation))

    def _scoring(self, action: Any, observation: Any) -> Steps[float]:
        outcome = yield from waited(self.rubric(action, observation))
        score, parts = _scored(self.rubric, outcome)
        is_open = score >= self.threshold
        self._parts = parts if is_open else dict.fromkeys(parts, 0.0)
        return score if is_open else 0.0

    def _part_names(self) -> list[str]:
        return self.rubric._part_names()

    @property
    def _label(self) -> str:
        return self.rubric._label


class WeightedSum(Rubric):
    """Adds the scores of several rubrics up, each times its weight.

        WeightedSum({"correct": Correct(), "format": Format()}, {"correct": 0.8, "format": 0.2})

    Those that have to be awaited are awaited together.

    Args:
        rubrics: What scores: by name, or a list, in which they are ``rubric_0``, ``rubric_1`` and
            so on. The names are those of the components.
        weights: One for each, in the same order, or by the same names; together they are 1.

    Raises:
        ValueError: There is not one weight for each rubric, or their sum is not 1 but for 1e-6; or
            a name is empty, or holds a dot.
    """

    def __init__(
        self,
        rubrics: Sequence[Rubric] | Mapping[str, Rubric] | RubricList | RubricDict,
        weights: Sequence[float] | Mapping[str, float],
    ) -> None:
        super().__init__()
        named = _named(rubrics)
        self._weights = dict(zip(named, _weights(list(named), weights), strict=True))
        for name, rubric in named.items():
            self._rubric_children[name] = _rubric(rubric)

    def __getattr__(self, name: str) -> Any:
        return _child(self, name)

    @property
    def weights(self) -> list[float]:
        """The weights, in the order of the rubrics; a copy."""
        return list(self._weights.values())

    def forward(self, action: Any, observation: Any) -> Any:
        return carry_out(self._scoring(action, observation))

    def _scoring(self, action: Any, observation: Any) -> Steps[float]:
        scored = self._begun(action, observation)
        if any(is_pending(one) for one in scored):
            scored = yield _together(scored)
        total = 0.0
        parts: dict[str, float] = {}
        for (name, weight), (score, below) in zip(self._weights.items(), scored, strict=True):
            total += score * weight
            parts |= {_joined(name, path): part * weight for path, part in below.items()}
        self._parts = parts
        return total

    def _begun(self, action: Any, observation: Any) -> list[Any]:
        """What each child gives: a score and its parts, or an awaitable of them."""
        begun: list[Any] = []
        for name in self._weights:
            child = self._rubric_children[name]
            try:
                outcome = child(action, observation)
                is_later = is_pending(outcome)
                begun.append(_later(child, outcome) if is_later else _scored(child, outcome))
            except Exception as error:
                if not any(is_pending(one) for one in begun):
                    raise
                begun.append(_failing(error))  # so that the others are begun, and then ended
                break
        return begun

    def _part_names(self) -> list[str]:
        named = ((name, self._rubric_children[name]) for name in self._weights)
        return [_joined(name, path) for name, child in named for path in child._part_names()]


class RubricList(_Listed):
    """A list of rubrics, for a rubric above it that says what they come to."""

    def __init__(self, rubrics: Iterable[Rubric] | None = None) -> None:
        super().__init__(rubrics or ())

    def forward(self, action: Any, observation: Any) -> Any:
        """Say that it scores nothing by itself.

        Raises:
            NotImplementedError: Always.
        """
        _scores_nothing(self)

    def append(self, rubric: Rubric) -> None:
        """Add one at the end."""
        self._add(rubric)

    def extend(self, rubrics: Iterable[Rubric]) -> None:
        """Add several at the end."""
        for rubric in list(rubrics):
            self._add(rubric)


class RubricDict(Rubric):
    """Rubrics by name, for a rubric above it that says what they come to.

    A name may be any text. A rubric can be read as an attribute too, where the name is none of the
    class's own.
    """

    def __init__(self, rubrics: Mapping[str, Rubric] | RubricDict | None = None) -> None:
        super().__init__()
        if rubrics is not None:
            self.update(rubrics)

    def forward(self, action: Any, observation: Any) -> Any:
        """Say that it scores nothing by itself.

        Raises:
            NotImplementedError: Always.
        """
        _scores_nothing(self)

    def __getattr__(self, name: str) -> Any:
        return _child(self, name)

    def __setitem__(self, key: str, rubric: Rubric) -> None:
        self._rubric_children[key] = _rubric(rubric)

    def __getitem__(self, key: str) -> Rubric:
        return self._rubric_children[key]

    def __contains__(self, key: object) -> bool:
        return key in self._rubric_children

    def __len__(self) -> int:
        return len(self._rubric_children)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._rubric_children))

    def keys(self) -> Iterator[str]:
        """The names, in the order in which they were given."""
        return iter(self)

    def values(self) -> Iterator[Rubric]:
        """The rubrics."""
        return self.children()

    def items(self) -> Iterator[tuple[str, Rubric]]:
        """The names and the rubrics."""
        return self.named_children()

    def update(self, rubrics: Mapping[str, Rubric] | RubricDict) -> None:
        """Add those of another dictionary, or replace those of the same names."""
        for key, rubric in rubrics.items():
            self[key] = rubric


# ------------------------------------------------------------------ what they share


def _rubric(rubric: Any) -> Rubric:
    if not isinstance(rubric, Rubric):
        raise TypeError(f"expected a Rubric, and got {type(rubric).__name__} {rubric!r:.80}")
    return rubric


def _child(rubric: Rubric, name: str) -> Rubric:
    """A child by an attribute that is not there."""
    children = rubric.__dict__.get("_rubric_children", {})
    if name not in children:
        raise AttributeError(f"{type(rubric).__name__!r} object has no attribute {name!r}")
    return children[name]  # type: ignore[no-any-return]


def _scores_nothing(rubric: Rubric) -> NoReturn:
    raise NotImplementedError(
        f"a {type(rubric).__name__} does not say what its rubrics come to: assign it to an "
        "attribute of a rubric whose forward does"
    )


def _scored(child: Rubric, score: Any) -> Scored:
    """What a child has just given, and its parts."""
    if score is None:
        raise InvalidReturnError(
            f"{type(child).__name__} returned None, of which no score can be made; a rubric "
            "returns a number, or raises Unscored"
        )
    return score, child._contributions(score)


async def _later(child: Rubric, pending: Awaitable[Any]) -> Scored:
    return _scored(child, await pending)


async def _failing(error: Exception) -> Scored:
    raise error


async def _together(begun: Sequence[Any]) -> list[Scored]:
    """Await what is to be awaited, all at once; where one fails, end the others too."""
    waiting = {i: asyncio.ensure_future(one) for i, one in enumerate(begun) if is_pending(one)}
    try:
        await asyncio.gather(*waiting.values())
    except BaseException:
        for task in waiting.values():
            task.cancel()
        await asyncio.gather(*waiting.values(), return_exceptions=True)
        raise
    return [waiting[i].result() if i in waiting else one for i, one in enumerate(begun)]


def _joined(name: str, path: str) -> str:
    return f"{name}.{path}" if path else name


def _named(rubrics: Any) -> dict[str, Rubric]:
    if not isinstance(rubrics, Mapping | RubricDict):
        return {f"rubric_{i}": rubric for i, rubric in enumerate(rubrics)}
    for name in rubrics:
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(f"a component cannot be named {name!r}: give it a text without dots")
    return dict(rubrics.items())


def _weights(names: Sequence[str], weights: Sequence[float] | Mapping[str, float]) -> list[float]:
    if isinstance(weights, Mapping):
        if set(weights) != set(names):
            raise ValueError(f"weights of {sorted(weights)}, and rubrics {sorted(names)}")
        weights = [weights[name] for name in names]
    if len(weights) != len(names):
        raise ValueError(f"the weights must match the rubrics: {len(weights)} and {len(names)}")
    total = math.fsum(weights)
    if not abs(total - 1.0) <= WEIGHTS_TOLERANCE:
        raise ValueError(f"the weights must sum to 1.0, and {list(weights)} sum to {total}")
    return list(weights)
