"""Reasoning Gym's datasets: making them, asking them, and having them score answers.

A dataset that has been made is shared by all who ask it, one at a time. Two datasets draw from the
generators that a whole process shares, Python's and NumPy's: these are seeded before and put back
after, by one thread at a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import hashlib
import json
import random
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import reasoning_gym
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from reasoning_gym.composite import DatasetSpec
from reasoning_gym.factory import DATASETS

from openenv.errors import Refused

from . import guard

__all__ = ["COMPOSITE", "NAMES", "Part", "Recipe", "dataset_seed"]

COMPOSITE = "composite"
NAMES: tuple[str, ...] = tuple(sorted(name for name in DATASETS if name != COMPOSITE))
"""Every dataset of the library but the composite one, which is made of others."""

_LARGEST_SEED = 2**31  # NumPy takes 32 bits, and datasets add the index of a question

_DRAW_FROM_THE_PROCESS = frozenset({"list_functions", "pool_matrix"})

_process_lock = threading.Lock()

guard.install()


class Part(BaseModel):
    """One dataset of a composite one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="The dataset.")
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False, description="Its share.")
    config: dict[str, JsonValue] = Field(default_factory=dict, description="Its configuration.")


class Recipe(BaseModel):
    """What determines the questions of a dataset."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    config: dict[str, JsonValue]
    parts: tuple[Part, ...]
    seed: int = Field(ge=0, le=_LARGEST_SEED)
    size: int = Field(ge=1, le=10**9)

    @classmethod
    def checked(cls, **given: Any) -> Recipe:
        """Make a recipe of what a caller gave.

        Raises:
            Refused: There is no such dataset or configuration.
        """
        try:
            recipe = cls.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise Refused(f"{where}: {first['msg']}, not {first['input']!r}") from None
        if recipe.parts:
            for part in recipe.parts:
                _check_config(part.name, part.config)
        else:
            _check_config(recipe.name, recipe.config)
        return recipe

    def question(self, index: int) -> dict[str, Any]:
        """Ask: the entry of the dataset, with question, answer and metadata.

        Raises:
            Refused: The dataset cannot be made like this, or fails to make this question.
        """
        try:
            with self._asking(self.seed + index) as dataset:
                entry: dict[str, Any] = dataset[index]
                return entry
        except Exception as error:
            if not self.is_configured:
                raise
            raise Refused(f"{self.name} cannot be asked like this: {error}") from error

    def score(self, answer: str, entry: dict[str, Any]) -> float:
        """Have the dataset score an answer, from 0 to 1.

        Raises:
            Exception: Whatever the dataset raises at an answer that it cannot read.
        """
        with self._asking(self.seed) as dataset:
            return float(dataset.score_answer(answer, entry))

    @contextlib.contextmanager
    def _asking(self, seed: int) -> Iterator[Any]:
        made = _made(self.model_dump_json())
        names = {self.name, *(part.name for part in self.parts)}
        draws = not _DRAW_FROM_THE_PROCESS.isdisjoint(names)
        with made.lock, _seeded(seed) if draws else contextlib.nullcontext():
            yield made.dataset

    @property
    def is_configured(self) -> bool:
        """Something of it was chosen by the caller."""
        return bool(self.config or self.parts)


def dataset_seed(seed: int) -> int:
    """Bring a seed into the range that datasets take; those in it stay what they are."""
    if 0 <= seed <= _LARGEST_SEED:
        return seed
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % _LARGEST_SEED


class _Made(NamedTuple):
    dataset: Any
    lock: Any


@lru_cache(maxsize=16)
def _made(recipe_json: str) -> _Made:
    """Make a dataset, which some take seconds for."""
    return _Made(_dataset(Recipe.model_validate_json(recipe_json)), threading.Lock())


def _dataset(recipe: Recipe) -> Any:
    common = {"seed": recipe.seed, "size": recipe.size}
    if recipe.parts:
        specs = [DatasetSpec(part.name, part.weight, _copied(part.config)) for part in recipe.parts]
        return reasoning_gym.create_dataset(COMPOSITE, datasets=specs, **common)
    return reasoning_gym.create_dataset(recipe.name, **_copied(recipe.config), **common)


def _copied(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration of its own, so that nobody changes that of the recipe."""
    copied: dict[str, Any] = json.loads(json.dumps(config))
    return copied


def _check_config(name: str, config: dict[str, Any]) -> None:
    if name not in NAMES:
        close = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(NAMES)}"
        raise Refused(f"there is no dataset {name!r}; {hint}")
    fields = {field.name for field in dataclasses.fields(DATASETS[name][1])} - {"seed", "size"}
    for key in config:
        if key in ("seed", "size"):
            raise Refused(f"dataset_config has {key!r}; give it to reset itself")
        if key not in fields:
            close = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(fields))}"
            raise Refused(f"{name} has no option {key!r}; {hint}")
        if "file" in key:
            raise Refused(f"{key} of {name} would read a file on the server")


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Have the process's generators begin at a seed, and afterwards go on where they stood."""
    with _process_lock:
        python, numpy = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
