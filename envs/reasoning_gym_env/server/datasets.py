"""Reasoning Gym's datasets: they make questions and score answers.

All sessions share a dataset, one at a time. Two datasets draw from Python's and NumPy's global
generators. One thread at a time seeds these before a call, and restores them afterwards.
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
"""The library's datasets, without the composite one, which consists of others."""

_MAX_SEED = 2**31  # NumPy takes 32 bits, and datasets add the index of a question

_DRAW_FROM_THE_PROCESS = frozenset({"list_functions", "pool_matrix"})

_process_lock = threading.Lock()

guard.install()


class Part(BaseModel):
    """A part of a composite dataset."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="The dataset.")
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False, description="The part's weight.")
    config: dict[str, JsonValue] = Field(default_factory=dict, description="The part's options.")


class Recipe(BaseModel):
    """The options and the seed that determine the questions of a dataset."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    config: dict[str, JsonValue]
    parts: tuple[Part, ...]
    seed: int = Field(ge=0, le=_MAX_SEED)
    size: int = Field(ge=1, le=10**9)

    @classmethod
    def from_arguments(cls, **given: Any) -> Recipe:
        """Make a recipe from a caller's arguments.

        Raises:
            Refused: The dataset or an option is unknown.
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

    def make_question(self, index: int) -> dict[str, Any]:
        """Return an entry of the dataset, with question, answer and metadata.

        Raises:
            Refused: The dataset fails with these options, or fails to make this question.
        """
        try:
            with self._open_dataset(self.seed + index) as dataset:
                entry: dict[str, Any] = dataset[index]
                return entry
        except Exception as error:
            if not self.is_configured:
                raise
            raise Refused(f"{self.name} cannot be asked like this: {error}") from error

    def score(self, answer: str, entry: dict[str, Any]) -> float:
        """Let the dataset score an answer, from 0 to 1.

        Raises:
            Exception: The dataset cannot read the answer.
        """
        with self._open_dataset(self.seed) as dataset:
            return float(dataset.score_answer(answer, entry))

    @contextlib.contextmanager
    def _open_dataset(self, seed: int) -> Iterator[Any]:
        made = _load_dataset(self.model_dump_json())
        names = {self.name, *(part.name for part in self.parts)}
        draws = not _DRAW_FROM_THE_PROCESS.isdisjoint(names)
        with made.lock, _seed_process(seed) if draws else contextlib.nullcontext():
            yield made.dataset

    @property
    def is_configured(self) -> bool:
        """Whether the caller has set options."""
        return bool(self.config or self.parts)


def dataset_seed(seed: int) -> int:
    """Map a seed into the range that datasets accept; a seed in the range stays the same."""
    if 0 <= seed <= _MAX_SEED:
        return seed
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % _MAX_SEED


class _LoadedDataset(NamedTuple):
    dataset: Any
    lock: Any


@lru_cache(maxsize=16)
def _load_dataset(recipe_json: str) -> _LoadedDataset:
    """Make a dataset, which takes seconds for some, and keep it."""
    return _LoadedDataset(_make_dataset(Recipe.model_validate_json(recipe_json)), threading.Lock())


def _make_dataset(recipe: Recipe) -> Any:
    common = {"seed": recipe.seed, "size": recipe.size}
    if recipe.parts:
        specs = [
            DatasetSpec(part.name, part.weight, _copy_config(part.config)) for part in recipe.parts
        ]
        return reasoning_gym.create_dataset(COMPOSITE, datasets=specs, **common)
    return reasoning_gym.create_dataset(recipe.name, **_copy_config(recipe.config), **common)


def _copy_config(config: dict[str, Any]) -> dict[str, Any]:
    """Copy options, so that the dataset cannot change those of the recipe."""
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
def _seed_process(seed: int) -> Iterator[None]:
    """Seed the process's generators for a block, and restore them afterwards."""
    with _process_lock:
        python, numpy = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
