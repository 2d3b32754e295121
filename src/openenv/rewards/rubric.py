"""Rubrics: composable scores of steps, in the manner of `torch.nn.Module` (RFC 004).

    class Helpful(Rubric):
        def __init__(self) -> None:
            super().__init__()
            self.correct, self.short = Correct(), Short()      # its children

        def forward(self, action, observation):
            return self.correct(action, observation) * self.short(action, observation)

A rubric is called with an action and the observation that followed. `forward` and hooks may be
``async def``. The type of the result follows one rule:

- A call returns a number if neither the rubric, nor a child, nor a hook had to be awaited.
  Otherwise the call returns an awaitable of the number.
- Inside a running event loop the number can be awaited too, so ``await rubric(action,
  observation)`` always works there.

A rubric that cannot score raises `Unscored`, which no container turns into a number. A call also
raises `Unscored` if `forward` returns NaN or infinity. In both cases `last_score` is None, and no
hook is called.

So that synchronous and asynchronous calls share one implementation, an evaluation is a generator
(`Steps`) that yields awaitables. `run_steps` drives the generator. If the generator yields nothing,
no event loop is needed; otherwise `run_steps` returns a coroutine that continues the generator.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar

from openenv._internal.quoting import did_you_mean
from openenv.errors import InvalidReturnError, Unscored
from openenv.reward import adds_up, components_of

T = TypeVar("T")

NO_PARTS: Mapping[str, float] = {}

Steps = Generator[Any, Any, T]
"""A computation that may have to wait: a generator that yields awaitables and receives results."""

Hook = Callable[["Rubric", Any, Any, float], Any]
"""Called with the rubric, the action, the observation and the score; may be ``async def``."""

PreHook = Callable[["Rubric", Any, Any], Any]
"""Called with the rubric, the action and the observation; may be ``async def``."""


class Rubric(ABC):
    """The base class of rubrics, which score steps. Subclasses implement `forward`.

    A rubric that is assigned to an attribute becomes a child with the attribute's name.

    Attributes:
        last_score: The latest score; None before the first call and after a failed call.

    Example:
        >>> from openenv import Rubric
        >>> class Short(Rubric):
        ...     def forward(self, action: str, observation: str) -> float:
        ...         return 1.0 if len(action) <= 10 else 0.0
        >>> rubric = Short()
        >>> rubric("brief", ""), rubric.last_score
        (1.0, 1.0)
    """

    last_score: float | None = None

    def __init__(self) -> None:
        # Attributes are created on first use, so that a subclass may call this constructor late or
        # never.
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

    # Parts of the score by name; "" stands for the whole rubric. The `forward` of a container sets
    # `_parts`; `_contributed` are the parts of the last evaluation.
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
        """Score a step; may be ``async def``.

        Args:
            action: The action that was taken.
            observation: The observation that followed.

        Returns:
            A finite number, by convention from 0 to 1; None if this step has nothing to score.

        Raises:
            Unscored: The step cannot be scored; the message gives the reason.
        """

    def __call__(self, action: Any, observation: Any) -> Any:
        """Score a step: run the pre-hooks, `forward`, and then the hooks.

        Returns:
            The result of `forward`, or an awaitable of that result; see the module's docstring.

        Raises:
            Unscored: The step could not be scored.
            InvalidReturnError: `forward` returned something other than a number.
        """
        return _answer(run_steps(self._evaluation(action, observation)))

    def _evaluation(self, action: Any, observation: Any) -> Steps[Any]:
        try:
            for before in tuple(self._forward_pre_hooks):
                yield from await_if_pending(before(self, action, observation))
            self._parts = NO_PARTS
            score = yield from await_if_pending(self.forward(action, observation))
            parts = self._check_parts(score, self._parts)
            self.last_score, self._contributed = score, parts
            for after in tuple(self._forward_hooks):
                yield from await_if_pending(after(self, action, observation, score))
            # Another evaluation may have ended while a hook was awaited.
            self.last_score, self._contributed = score, parts
            return score
        except BaseException:
            self.last_score, self._contributed = None, NO_PARTS
            raise

    def _check_parts(self, score: Any, parts: Mapping[str, float]) -> Mapping[str, float]:
        """Return the parts if they add up to the score, otherwise a single part."""
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
        """Call a function after each evaluation, in order of registration."""
        self._forward_hooks.append(hook)

    def register_forward_pre_hook(self, hook: PreHook) -> None:
        """Call a function before each evaluation, in order of registration."""
        self._forward_pre_hooks.append(hook)

    # ------------------------------------------------------------------ components

    def components(self) -> dict[str, float]:
        """Return the named parts that add up to `last_score`.

        A `WeightedSum` has the weighted parts of its children. A part is named after the child,
        followed by a dot and the part's name if the child has named parts. A `Gate` has the parts
        of its child, and a `Sequential` the parts of its last child; all are 0 if the container
        itself returned 0. Any other rubric has one part, named after its class in snake case
        (``llm_judge``). Override this method to return more parts.

        Returns:
            The parts by name; empty if there is no score.
        """
        return {name or self._label: part for name, part in self._contributed.items()}

    def _contributions(self, score: Any) -> Mapping[str, float]:
        """Return the parts of the score that this rubric just returned to its parent."""
        is_overridden = type(self).components is not Rubric.components
        return self._check_parts(score, components_of(self) if is_overridden else self._contributed)

    def _part_names(self) -> list[str]:
        """Return the names of the parts that an evaluation would have returned."""
        return [""]

    @property
    def _label(self) -> str:
        name = type(self).__name__
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()

    # ------------------------------------------------------------------ children

    def children(self) -> Iterator[Rubric]:
        """Iterate over the children."""
        return iter(list(self._rubric_children.values()))

    def named_children(self) -> Iterator[tuple[str, Rubric]]:
        """Iterate over pairs of name and child."""
        return iter(list(self._rubric_children.items()))

    def rubrics(self) -> Iterator[Rubric]:
        """Iterate over all descendants, parents first."""
        for _, rubric in self.named_rubrics():
            yield rubric

    def named_rubrics(self, prefix: str = "") -> Iterator[tuple[str, Rubric]]:
        """Iterate over all descendants with paths such as ``outer.inner``, parents first.

        Args:
            prefix: The path of this rubric.
        """
        for name, child in self.named_children():
            path = f"{prefix}.{name}" if prefix else name
            yield path, child
            yield from child.named_rubrics(path)

    def get_rubric(self, path: str) -> Rubric:
        """Return the descendant at a path from `named_rubrics`.

        Raises:
            KeyError: No rubric has this path.
        """
        for found, rubric in self.named_rubrics():  # names may hold dots, so nothing is split
            if found == path:
                return rubric
        paths = [found for found, _ in self.named_rubrics()]
        raise KeyError(f"there is no rubric {path!r}{did_you_mean(path, paths)}")

    # ------------------------------------------------------------------ episodes, settings

    def reset(self) -> Any:
        """Begin a new episode, here and in all descendants.

        Override this method to reset the state of an episode, and return the result of
        ``super().reset()``. The override may be ``async def``. A child whose `forward` is ``async
        def`` may define `reset_async` instead, which is awaited in place of `reset`.

        Returns:
            None, or an awaitable if the `reset` of a descendant has to be awaited.
        """
        return run_steps(self._resetting())

    def _resetting(self) -> Steps[None]:
        for child in self.children():
            reset = getattr(child, "reset_async", None)
            if reset is None or not inspect.iscoroutinefunction(child.forward):
                reset = child.reset
            yield from await_if_pending(reset())

    def state_dict(self) -> dict[str, Any]:
        """Return the settings of this rubric, and by name the settings of its children.

        A subclass adds its own settings to ``super().state_dict()``.
        """
        below = ((name, child.state_dict()) for name, child in self.named_children())
        return {name: settings for name, settings in below if settings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore settings that `state_dict` returned.

        Each child gets the value under its name. A subclass also restores its own settings.
        """
        for name, child in self.named_children():
            if isinstance(state.get(name), dict):
                child.load_state_dict(state[name])


# ------------------------------------------------------------------ sync and async


class _AwaitableScore(float):
    """A number that can also be awaited, like a pending score."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, float]:
        yield from ()
        return float(self)


def _answer(outcome: Any) -> Any:
    if not isinstance(outcome, int | float):
        return outcome
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return outcome
    return _AwaitableScore(outcome)


def is_pending(value: Any) -> bool:
    """Return whether a value has to be awaited; False for an awaitable number."""
    return hasattr(value, "__await__") and not isinstance(value, float)


def await_if_pending(value: Any) -> Steps[Any]:
    """Return a value, or the result of awaiting the value if it is pending."""
    if is_pending(value):
        return (yield value)
    return value


def run_steps(steps: Steps[T]) -> T | Awaitable[T]:
    """Run a generator to the end, or return an awaitable that continues from the first `yield`."""
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
            except BaseException as error:  # noqa: PERF203  # negligible next to what is awaited
                pending = steps.throw(error)
            else:
                pending = steps.send(outcome)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
