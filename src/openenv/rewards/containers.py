"""Rubrics that combine other rubrics: lists, gates, sequences and weighted sums."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from openenv.errors import InvalidReturnError
from openenv.rewards.rubric import NO_PARTS, Rubric, Steps, await_if_pending, is_pending, run_steps

WEIGHTS_TOLERANCE = 1e-6

Scored = tuple[float, Mapping[str, float]]
"""A score and the parts of that score by name."""


class _RubricSequence(Rubric):
    """A rubric with ordered children named ``rubric_0``, ``rubric_1`` and so on."""

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


class Sequential(_RubricSequence):
    """A rubric that scores with each child in turn and stops at the first score of 0.

    The score is that of the last child, 0.0 if an earlier child stopped the sequence, and 1.0 if
    there are no children. The components are those of the last child.
    """

    def __init__(self, *rubrics: Rubric) -> None:
        super().__init__(rubrics)

    def forward(self, action: Any, observation: Any) -> Any:
        return run_steps(self._scoring(action, observation))

    def _scoring(self, action: Any, observation: Any) -> Steps[float]:
        score: float = 1.0
        parts: Mapping[str, float] = NO_PARTS
        for left, child in zip(range(len(self) - 1, -1, -1), self, strict=True):
            outcome = yield from await_if_pending(child(action, observation))
            score, parts = _score_with_parts(child, outcome)
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
    """A rubric that passes on a score of at least the threshold and turns lower scores into 0.

    Args:
        rubric: The rubric whose score is compared with the threshold.
        threshold: Lowest score that passes. Default: 1.0.
    """

    def __init__(self, rubric: Rubric, threshold: float = 1.0) -> None:
        super().__init__()
        self.rubric = _rubric(rubric)
        self.threshold = threshold

    def forward(self, action: Any, observation: Any) -> Any:
        return run_steps(self._scoring(action, observation))

    def _scoring(self, action: Any, observation: Any) -> Steps[float]:
        outcome = yield from await_if_pending(self.rubric(action, observation))
        score, parts = _score_with_parts(self.rubric, outcome)
        is_open = score >= self.threshold
        self._parts = parts if is_open else dict.fromkeys(parts, 0.0)
        return score if is_open else 0.0

    def _part_names(self) -> list[str]:
        return self.rubric._part_names()

    @property
    def _label(self) -> str:
        return self.rubric._label


class WeightedSum(Rubric):
    """A rubric that returns the weighted sum of the scores of several rubrics.

        WeightedSum({"correct": Correct(), "format": Format()}, {"correct": 0.8, "format": 0.2})

    Asynchronous children are awaited concurrently.

    Args:
        rubrics: The children, by name or as a list. Children of a list are named ``rubric_0``,
            ``rubric_1`` and so on. The components have the same names.
        weights: One weight per child, in the same order or by the same names. The weights must sum
            to 1.

    Raises:
        TypeError: A child is not a `Rubric`.
        ValueError: The weights do not match the rubrics or do not sum to 1 within 1e-6, or a name
            is empty or contains a dot.
    """

    def __init__(
        self,
        rubrics: Sequence[Rubric] | Mapping[str, Rubric] | RubricList | RubricDict,
        weights: Sequence[float] | Mapping[str, float],
    ) -> None:
        super().__init__()
        named = _name_rubrics(rubrics)
        self._weights = dict(zip(named, _weights(list(named), weights), strict=True))
        for name, rubric in named.items():
            self._rubric_children[name] = _rubric(rubric)

    def __getattr__(self, name: str) -> Any:
        return _child(self, name)

    @property
    def weights(self) -> list[float]:
        """Return a copy of the weights, in the order of the rubrics."""
        return list(self._weights.values())

    def forward(self, action: Any, observation: Any) -> Any:
        return run_steps(self._scoring(action, observation))

    def _scoring(self, action: Any, observation: Any) -> Steps[float]:
        scored = self._begin_children(action, observation)
        if any(is_pending(one) for one in scored):
            scored = yield _await_all(scored)
        total = 0.0
        parts: dict[str, float] = {}
        for (name, weight), (score, below) in zip(self._weights.items(), scored, strict=True):
            total += score * weight
            parts |= {_join_path(name, path): part * weight for path, part in below.items()}
        self._parts = parts
        return total

    def _begin_children(self, action: Any, observation: Any) -> list[Any]:
        begun: list[Any] = []
        for name in self._weights:
            child = self._rubric_children[name]
            try:
                outcome = child(action, observation)
                scored = _await_score if is_pending(outcome) else _score_with_parts
                begun.append(scored(child, outcome))
            except Exception as error:
                if not any(is_pending(one) for one in begun):
                    raise
                begun.append(_raise_error(error))  # `_await_all` cancels the pending children
                break
        return begun

    def _part_names(self) -> list[str]:
        named = ((name, self._rubric_children[name]) for name in self._weights)
        return [_join_path(name, path) for name, child in named for path in child._part_names()]


class RubricList(_RubricSequence):
    """A list of rubrics that a parent rubric combines."""

    def __init__(self, rubrics: Iterable[Rubric] | None = None) -> None:
        super().__init__(rubrics or ())

    def forward(self, action: Any, observation: Any) -> Any:
        _scores_nothing(self)

    def append(self, rubric: Rubric) -> None:
        """Add a rubric at the end."""
        self._add(rubric)

    def extend(self, rubrics: Iterable[Rubric]) -> None:
        """Add several rubrics at the end."""
        for rubric in list(rubrics):
            self._add(rubric)


class RubricDict(Rubric):
    """A dictionary of rubrics that a parent rubric combines.

    A name may be any string. Each rubric is also available as an attribute, unless the class has an
    attribute of the same name.
    """

    def __init__(self, rubrics: Mapping[str, Rubric] | RubricDict | None = None) -> None:
        super().__init__()
        if rubrics is not None:
            self.update(rubrics)

    def forward(self, action: Any, observation: Any) -> Any:
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
        """Iterate over the names in insertion order."""
        return iter(self)

    def values(self) -> Iterator[Rubric]:
        """Iterate over the rubrics in insertion order."""
        return self.children()

    def items(self) -> Iterator[tuple[str, Rubric]]:
        """Iterate over pairs of name and rubric in insertion order."""
        return self.named_children()

    def update(self, rubrics: Mapping[str, Rubric] | RubricDict) -> None:
        """Add the rubrics of another dictionary, replacing those of the same name."""
        for key, rubric in rubrics.items():
            self[key] = rubric


# ------------------------------------------------------------------ helpers


def _rubric(rubric: Any) -> Rubric:
    if not isinstance(rubric, Rubric):
        raise TypeError(f"expected a Rubric, and got {type(rubric).__name__} {rubric!r:.80}")
    return rubric


def _child(rubric: Rubric, name: str) -> Rubric:
    children = rubric.__dict__.get("_rubric_children", {})
    if name not in children:
        raise AttributeError(f"{type(rubric).__name__!r} object has no attribute {name!r}")
    return children[name]  # type: ignore[no-any-return]


def _scores_nothing(rubric: Rubric) -> NoReturn:
    raise NotImplementedError(
        f"a {type(rubric).__name__} does not define how to combine its rubrics: assign it to an "
        "attribute of a rubric whose forward combines them"
    )


def _score_with_parts(child: Rubric, score: Any) -> Scored:
    """Return a child's score together with the parts of that score."""
    if score is None:
        raise InvalidReturnError(
            f"{type(child).__name__} returned None, which cannot be combined; a rubric "
            "returns a number, or raises Unscored"
        )
    return score, child._contributions(score)


async def _await_score(child: Rubric, pending: Awaitable[Any]) -> Scored:
    return _score_with_parts(child, await pending)


async def _raise_error(error: Exception) -> Scored:
    raise error


async def _await_all(begun: Sequence[Any]) -> list[Scored]:
    """Await all awaitables concurrently; cancel the rest after a failure."""
    waiting = {i: asyncio.ensure_future(one) for i, one in enumerate(begun) if is_pending(one)}
    try:
        await asyncio.gather(*waiting.values())
    except BaseException:
        for task in waiting.values():
            task.cancel()
        await asyncio.gather(*waiting.values(), return_exceptions=True)
        raise
    return [waiting[i].result() if i in waiting else one for i, one in enumerate(begun)]


def _join_path(name: str, path: str) -> str:
    return f"{name}.{path}" if path else name


def _name_rubrics(rubrics: Any) -> dict[str, Rubric]:
    if not isinstance(rubrics, Mapping | RubricDict):
        return {f"rubric_{i}": rubric for i, rubric in enumerate(rubrics)}
    for name in rubrics:
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(
                f"invalid component name {name!r}; expected a non-empty text without dots"
            )
    return dict(rubrics.items())


def _weights(names: Sequence[str], weights: Sequence[float] | Mapping[str, float]) -> list[float]:
    if isinstance(weights, Mapping):
        if set(weights) != set(names):
            raise ValueError(f"weights {sorted(weights)} do not match rubrics {sorted(names)}")
        weights = [weights[name] for name in names]
    if len(weights) != len(names):
        raise ValueError(
            f"the weights must match the rubrics: {len(weights)} weights for {len(names)} rubrics"
        )
    total = math.fsum(weights)
    if not abs(total - 1.0) <= WEIGHTS_TOLERANCE:
        raise ValueError(f"the weights must sum to 1.0, but {list(weights)} sum to {total}")
    return list(weights)
