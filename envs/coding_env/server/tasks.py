"""Tasks, with the tests of their answers.

The bundled tasks are the functions below. A test calls one, and expects the same result of the
answer's function of that name. So the expected values exist only in this process. The docstrings of
these functions are the prompts of the tasks.
"""

from __future__ import annotations

import difflib
import inspect
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from openenv.errors import Refused

__all__ = ["Case", "Task", "TaskSet", "bundled_functions"]


class Case(BaseModel):
    """A test: an expression with its expected value, or an input with its expected output.

    `call` and `expected` are Python; `expected` is a literal. `stdin` and `stdout` are text. Blanks
    at the ends of lines and of the text do not count.
    """

    model_config = ConfigDict(extra="forbid")

    call: str | None = None
    expected: Any = None
    stdin: str | None = None
    stdout: str | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Case:
        if (self.call is None) == (self.stdin is None):
            raise ValueError("a test has either call and expected, or stdin and stdout")
        if self.stdin is not None and self.stdout is None:
            raise ValueError("a test with stdin has stdout, too")
        return self


class Task(BaseModel):
    """A task for an agent, with the tests of its answer."""

    model_config = ConfigDict(extra="forbid")

    id: str
    prompt: str
    split: str = "train"
    tests: list[Case] = Field(min_length=1)
    wall_s: float = Field(default=5.0, gt=0, le=300, description="Seconds for each test.")

    def to_public(self) -> dict[str, Any]:
        """Return the task without its tests."""
        return {"id": self.id, "prompt": self.prompt, "num_tests": len(self.tests)}


class TaskSet:
    """A set of tasks with unique ids."""

    def __init__(self, tasks: list[Task]) -> None:
        counted = Counter(task.id for task in tasks)
        if twice := [id for id, count in counted.items() if count > 1]:
            raise ValueError(f"several tasks have the id {twice[0]!r}")
        self._tasks = {task.id: task for task in tasks}

    @classmethod
    def from_environ(cls) -> TaskSet:
        """Read the JSONL file that CODING_TASKS names, or take the bundled tasks."""
        path = os.environ.get("CODING_TASKS")
        return cls(list(_read(Path(path))) if path else list(_bundled_tasks()))

    def splits(self) -> list[str]:
        """Return the names of the splits."""
        return sorted({task.split for task in self._tasks.values()})

    def split(self, name: str) -> list[Task]:
        """Return the tasks of a split.

        Raises:
            Refused: The split is unknown.
        """
        if name not in self.splits():
            raise Refused(f"there is no split {name!r}; there are {', '.join(self.splits())}")
        return [task for task in self._tasks.values() if task.split == name]

    def find(self, wanted: str | Mapping[str, Any]) -> Task:
        """Find a task by its id, or by a dictionary that `get_task` returned.

        Raises:
            Refused: The task is unknown.
        """
        id = wanted if isinstance(wanted, str) else wanted.get("id")
        if id in self._tasks:
            return self._tasks[id]
        close = difflib.get_close_matches(str(id), self._tasks, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise Refused(f"there is no task {id!r}{hint}; /tasks lists them")


def _read(path: Path) -> Iterator[Task]:
    """Yield the tasks of a JSONL file.

    Raises:
        ValueError: A line is not a valid task; the message has its number and the reason.
    """
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield Task.model_validate(json.loads(line))
        except (ValueError, ValidationError) as error:
            raise ValueError(f"{path}:{number} is no task: {error}") from error


# ------------------------------------------------------------------ the bundled ones


class _Bundled(NamedTuple):
    function: Callable[..., Any]
    split: str
    arguments: tuple[tuple[Any, ...], ...]


_BUNDLED: list[_Bundled] = []


def _bundle(split: str, *arguments: tuple[Any, ...]) -> Callable[[Callable[..., Any]], Any]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _BUNDLED.append(_Bundled(function, split, arguments))
        return function

    return register


@cache
def _bundled_tasks() -> tuple[Task, ...]:
    return tuple(map(_make_task, _BUNDLED))


def bundled_functions() -> dict[str, Callable[..., Any]]:
    """Return the solution of each bundled task, by its id."""
    return {bundled.function.__name__: bundled.function for bundled in _BUNDLED}


def _make_task(bundled: _Bundled) -> Task:
    function, split, arguments = bundled
    name = function.__name__
    signature = str(inspect.signature(function)).replace("'", "")
    asked = inspect.cleandoc(function.__doc__ or "")
    tests = [
        Case(call=f"{name}({', '.join(map(repr, one))})", expected=function(*one))
        for one in arguments
    ]
    prompt = f"Write a Python function `{name}{signature}`.\n\n{asked}"
    return Task(id=name, prompt=prompt, split=split, tests=tests)


@_bundle("train", ("",), ("a",), ("aaabb",), ("abca",), ("  x",))
def run_lengths(text: str) -> list:  # type: ignore[type-arg]
    """Give the runs of equal characters in the text, in order, as (character, length) tuples."""
    runs: list[tuple[str, int]] = []
    for character in text:
        if runs and runs[-1][0] == character:
            runs[-1] = (character, runs[-1][1] + 1)
        else:
            runs.append((character, 1))
    return runs


@_bundle("train", ([],), ([3],), ([1, 2, 3, 4],), ([5, -5, 5],), ([-1, -2],))
def running_maximum(numbers: list) -> list:  # type: ignore[type-arg]
    """For each position, give the largest number up to and with it."""
    return [max(numbers[: end + 1]) for end in range(len(numbers))]


@_bundle("train", ("",), ("()",), ("([{}])",), ("(]",), ("((",), ("a(b)c]",), ("())(",))
def is_balanced(text: str) -> bool:
    """Say whether the brackets (), [] and {} in the text are balanced; the rest does not count."""
    stack, pairs = [], {")": "(", "]": "[", "}": "{"}
    for character in text:
        if character in pairs.values():
            stack.append(character)
        elif character in pairs and (not stack or stack.pop() != pairs[character]):
            return False
    return not stack


@_bundle("train", (0,), (9,), (10,), (493193,), (2**61,))
def digital_root(number: int) -> int:
    """Sum the decimal digits of the number, again and again, until one digit is left."""
    while number > 9:
        number = sum(map(int, str(number)))
    return number


@_bundle("train", ("the cat the dog", 1), ("b a b a c", 2), ("", 3), ("x y z", 2), ("A a", 2))
def most_frequent(text: str, count: int) -> list:  # type: ignore[type-arg]
    """Give the `count` most frequent words (parts between blanks, case counts), the most frequent
    first; of equally frequent ones the alphabetically first.
    """
    counted = Counter(text.split())
    return sorted(counted, key=lambda word: (-counted[word], word))[:count]


@_bundle("train", ([[1]],), ([[1, 2], [3, 4]],), ([[1, 2, 3]],), ([[1], [2]],), ([],))
def rotated(grid: list) -> list:  # type: ignore[type-arg]
    """Turn the grid (a list of rows) by a quarter, clockwise."""
    return [list(row) for row in zip(*grid[::-1], strict=True)]


@_bundle("train", ([(1, 3), (2, 5)],), ([(1, 2), (3, 4)],), ([],), ([(5, 9), (1, 2), (2, 3)],))
def merged(intervals: list) -> list:  # type: ignore[type-arg]
    """Merge the (start, end) intervals that overlap or touch; give tuples in ascending order."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


@_bundle("train", (1,), (4,), (9,), (14,), (1999,), (3888,))
def roman(number: int) -> str:
    """Write the number, 1 to 3999, in Roman numerals."""
    text = ""
    for value, letters in zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I"),
        strict=True,
    ):
        text += letters * (number // value)
        number %= value
    return text


@_bundle("test", ({"a": 1},), ({"a": {"b": 1, "c": {"d": 2}}},), ({},), ({"a": {}, "b": [1]},))
def flattened(nested: dict) -> dict:  # type: ignore[type-arg]
    """Flatten the dictionary: keys of inner ones are joined to the outer key by a dot. An inner
    dictionary that is empty stays as it is.
    """
    flat = {}
    for key, value in nested.items():
        if isinstance(value, dict) and value:
            flat.update({f"{key}.{inner}": one for inner, one in flattened(value).items()})
        else:
            flat[key] = value
    return flat


@_bundle("test", ("kitten", "sitting"), ("", "abc"), ("same", "same"), ("ab", "ba"), ("abc", ""))
def edit_distance(one: str, other: str) -> int:
    """Count the insertions, deletions and replacements of single characters that at least are
    needed to make the other text of the one.
    """
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        previous, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]


@_bundle("test", ([1, 2, 3], 0), ([1, 2, 3], 1), ([1, 2, 3], -1), ([1, 2, 3], 7), ([], 3))
def shifted(items: list, by: int) -> list:  # type: ignore[type-arg]
    """Move every item `by` places to the right; what falls out comes in again on the left."""
    if not items:
        return []
    by %= len(items)
    return items[-by:] + items[:-by] if by else list(items)


@_bundle("test", (["S#E"],), (["S.E"],), (["S..", "##.", "E.."],), (["S#", "#E"],), (["SE"],))
def steps_to_the_exit(maze: list) -> int:  # type: ignore[type-arg]
    """Count the steps (up, down, left, right) of the shortest way from S to E in the maze, a list
    of equally long strings in which # is a wall. Give -1 where there is no way.
    """
    places = {(r, c): cell for r, row in enumerate(maze) for c, cell in enumerate(row)}
    here = {place for place, cell in places.items() if cell == "S"}
    seen, steps = set(here), 0
    while here:
        if any(places[place] == "E" for place in here):
            return steps
        near = {(r + dr, c + dc) for r, c in here for dr, dc in ((0, 1), (0, -1), (1, 0), (-1, 0))}
        here = {place for place in near if places.get(place, "#") != "#"} - seen
        seen |= here
        steps += 1
    return -1
