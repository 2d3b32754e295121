"""Rubrics: scores of steps, built of parts, in the manner of `torch.nn.Module` (RFC 004).

    class Helpful(Rubric):
        def __init__(self) -> None:
            super().__init__()
            self.correct, self.short = Correct(), Short()      # its children

        def forward(self, action, observation):
            return self.correct(action, observation) * self.short(action, observation)

A rubric is called with an action and the observation that it led to. `forward` may be
``async def``, and so may hooks. What a call gives, a number or something to await, follows one
rule:

- It is the number, where nothing had to be awaited: neither by the rubric, nor below it, nor by a
  hook. Otherwise it is one awaitable.
- Inside a running event loop that number may be awaited too. ``await rubric(action, observation)``
  is right there whatever the rubric is made of.

A rubric that cannot score raises `Unscored`, which no container turns into a number; nor is there
a number where `forward` gives NaN or infinity. `last_score` is None then, and no hook is called.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar

from openenv.errors import InvalidReturnError, Unscored
from openenv.reward import adds_up, components_of

__all__ = ["Hook", "PreHook", "Rubric"]

T = TypeVar("T")

NO_PARTS: Mapping[str, float] = {}

Steps = Generator[Any, Any, T]
"""Something to carry out that may have to wait: it yields what is to be awaited, and is sent what
came of that.
"""

Hook = Callable[["Rubric", Any, Any, float], Any]
"""Called with the rubric, the action, the observation and the score; may be ``async def``."""

PreHook = Callable[["Rubric", Any, Any], Any]
"""Called with the rubric, the action and the observation; may be ``async def``."""


class Rubric(ABC):
    """Scores what an action has led to. Subclass it and write `forward`.

    A rubric that is assigned to an attribute becomes a child of that name.

    Attributes:
        last_score: What it has given last; None before that, and where it could not score.
    """

    last_score: float | None = None

    def __init__(self) -> None:
        # What it holds is made when it is first needed, so that subclasses may call this at any
        # point of theirs, or forget to.
        super().__init__()

    @cached_property
    def _rubric_children(self) -> dict[str, Rubric]:
        return {}

    @cached_property
    def _forward_hooks(self) -> list[Hook]:
        return []

    @cached_property
    def _forward_pre_hooks(self) -> list[PreHook]:
        return []

    # Parts of the score by name, "" for the rubric as a whole: those that the `forward` of a
    # container tells, and those of the last evaluation.
    _parts: Mapping[str, float] = NO_PARTS
    _contributed: Mapping[str, float] = NO_PARTS

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Rubric):
            self._rubric_children[name] = value
        else:
            self._rubric_children.pop(name, None)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self._rubric_children.pop(name, None)

    # ------------------------------------------------------------------ scoring

    @abstractmethod
    def forward(self, action: Any, observation: Any) -> Any:
        """Score a step; it may be ``async def``.

        Args:
            action: What was done.
            observation: What came of it.

        Returns:
            A finite number, by convention from 0 to 1; None where this step has nothing to score.

        Raises:
            Unscored: It cannot be scored; the text says why.
        """

    def __call__(self, action: Any, observation: Any) -> Any:
        """Score a step: run the pre-hooks, `forward`, and then the hooks.

        Returns:
            What `forward` gives, or an awaitable of it; see the rule above.

        Raises:
            Unscored: It could not be scored.
            InvalidReturnError: `forward` gave something that is no number.
        """
        return _answer(carry_out(self._evaluation(action, observation)))

    def _evaluation(self, action: Any, observation: Any) -> Steps[Any]:
        try:
            for before in tuple(self._forward_pre_hooks):
                yield from waited(before(self, action, observation))
            self._parts = NO_PARTS
            score = yield from waited(self.forward(action, observation))
            parts = self._agreed(score, self._parts)
            self.last_score, self._contributed = score, parts
            for after in tuple(self._forward_hooks):
                yield from waited(after(self, action, observation, score))
            # Another evaluation may have ended while a hook was awaited.
            self.last_score, self._contributed = score, parts
            return score
        except BaseException:
            self.last_score, self._contributed = None, NO_PARTS
            raise

    def _agreed(self, score: Any, parts: Mapping[str, float]) -> Mapping[str, float]:
        """The parts, if they are those of the score; it is its own one part otherwise."""
        if score is None:
            return NO_PARTS
        try:
            is_finite = math.isfinite(score)
        except (TypeError, OverflowError):
            raise InvalidReturnError(
                f"{type(self).__name__} returned {score!r:.80}; a rubric returns a number, or "
                "raises Unscored"
            ) from None
        if not is_finite:
            raise Unscored(f"the rubric {self._label} gave {score}")
        return parts if parts and adds_up(score, parts) else {"": float(score)}

    def register_forward_hook(self, hook: Hook) -> None:
        """Have a function called after each evaluation, in the order in which they were given."""
        self._forward_hooks.append(hook)

    def register_forward_pre_hook(self, hook: PreHook) -> None:
        """Have a function called before each evaluation, in the order in which they were given."""
        self._forward_pre_hooks.append(hook)

    # ------------------------------------------------------------------ what a score is made of

    def components(self) -> dict[str, float]:
        """The parts of `last_score` by name, which add up to it.

        A `WeightedSum` has those of its children, each times its weight, under the child's name
        and a dot where the child has several. A `Gate` has those of its child, and a `Sequential`
        those of its last, each 0 where it gave 0 itself. Any other rubric is one part, under the
        name of its class in lower case (``llm_judge``); override this to tell more.

        Returns:
            The parts; empty where there is no score.
        """
        return {name or self._label: part for name, part in self._contributed.items()}

    def _contributions(self, score: Any) -> Mapping[str, float]:
        """The parts of what this rubric has just given to the one above it."""
        is_overridden = type(self).components is not Rubric.components
        return self._agreed(score, components_of(self) if is_overridden else self._contributed)

    def _part_names(self) -> list[str]:
        """Under which names there would be parts, had there been an evaluation."""
        return [""]

    @property
    def _label(self) -> str:
        name = type(self).__name__
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()

    # ------------------------------------------------------------------ children

    def children(self) -> Iterator[Rubric]:
        """Each child."""
        return iter(list(self._rubric_children.values()))

    def named_children(self) -> Iterator[tuple[str, Rubric]]:
        """Each child with its name."""
        return iter(list(self._rubric_children.items()))

    def rubrics(self) -> Iterator[Rubric]:
        """Each rubric below this one, however deep, parents first."""
        for _, rubric in self.named_rubrics():
            yield rubric

    def named_rubrics(self, prefix: str = "") -> Iterator[tuple[str, Rubric]]:
        """Each rubric below this one with its path, such as ``outer.inner``, parents first.

        Args:
            prefix: The path of this rubric.
        """
        for name, child in self.named_children():
            path = f"{prefix}.{name}" if prefix else name
            yield path, child
            yield from child.named_rubrics(path)

    def get_rubric(self, path: str) -> Rubric:
        """The rubric of a path that `named_rubrics` gives.

        Raises:
            KeyError: There is none.
        """
        for found, rubric in self.named_rubrics():  # names may hold dots, so nothing is split
            if found == path:
                return rubric
        paths = [found for found, _ in self.named_rubrics()]
        close = difflib.get_close_matches(path, paths, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise KeyError(f"there is no rubric {path!r}{hint}")

    # ------------------------------------------------------------------ episodes, settings

    def reset(self) -> Any:
        """Begin a new episode, here and in all rubrics below.

        Override it to forget what belongs to an episode, and return what ``super().reset()``
        gives. It may be ``async def``. A rubric whose `forward` is ``async def`` may have a
        `reset_async` instead, which is awaited in its place.

        Returns:
            None; or an awaitable, where a rubric below has to be awaited.
        """
        return carry_out(self._resetting())

    def _resetting(self) -> Steps[None]:
        for child in self.children():
            reset = getattr(child, "reset_async", None)
            if reset is None or not inspect.iscoroutinefunction(child.forward):
                reset = child.reset
            yield from waited(reset())

    def state_dict(self) -> dict[str, Any]:
        """The settings: its own, and under the name of each child those of the child.

        Whatever has no settings is left out. A subclass adds its own to what
        ``super().state_dict()`` gives.
        """
        below = ((name, child.state_dict()) for name, child in self.named_children())
        return {name: settings for name, settings in below if settings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over settings that `state_dict` gave.

        Each child is given what stands under its name; the rest is for the subclass to read.
        """
        for name, child in self.named_children():
            if isinstance(state.get(name), dict):
                child.load_state_dict(state[name])


# ------------------------------------------------------------------ plain and awaited alike


class _Known(float):
    """A score that is there, and may be awaited like one that is not."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, float]:
        yield from ()
        return float(self)


def _answer(outcome: Any) -> Any:
    """What a call gives back: a number may be awaited, where somebody could."""
    if not isinstance(outcome, int | float):
        return outcome
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return outcome
    return _Known(outcome)


def is_pending(value: Any) -> bool:
    """Whether something has to be awaited; a number has not, though it may be."""
    return hasattr(value, "__await__") and not isinstance(value, float)


def waited(value: Any) -> Steps[Any]:
    """Give what a value is, or what comes of awaiting it."""
    if is_pending(value):
        return (yield value)
    return value


def carry_out(steps: Steps[T]) -> T | Awaitable[T]:
    """Carry steps out as far as nothing has to be awaited; where something has, give what awaits
    it and then carries on.
    """
    try:
        pending = next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    return _carry_on(steps, pending)


async def _carry_on(steps: Steps[T], pending: Awaitable[Any]) -> T:
    try:
        while True:
            try:
                outcome = await pending
            except BaseException as error:  # noqa: PERF203  # whatever is awaited takes longer
                pending = steps.throw(error)
            else:
                pending = steps.send(outcome)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
