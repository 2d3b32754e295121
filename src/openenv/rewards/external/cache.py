"""Keeping scores, so that what was scored once is not scored again."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, Protocol

from openenv._internal.json import read_json
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory
from openenv.rewards.external.scorers import as_data, canonical, scored_as

__all__ = ["DirectoryCache", "MemoryCache", "ScoreCache", "cache_of", "key_of"]

logger = logging.getLogger(__name__)

MAX_ENTRIES = 10_000


class ScoreCache(Protocol):
    """Where scores are kept; its methods are called from any thread."""

    def get(self, key: str) -> Score | None:
        """The score under this key; None if there is none."""
        ...

    def put(self, key: str, score: Score) -> None:
        """Keep a score."""
        ...


def key_of(identity: str, trajectory: Trajectory[Any, Any]) -> str:
    """What a score is kept under: a digest (SHA-256) of who scores and of all that is scored.

    Raises:
        Unscored: The episode cannot be written as JSON.
    """
    return hashlib.sha256(canonical([identity, as_data(trajectory)])).hexdigest()


class MemoryCache:
    """Scores in memory; the least lately used is forgotten first.

    Args:
        max_entries: So many scores at most.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        if max_entries < 1:
            raise ValueError(f"max_entries must be at least 1, not {max_entries}")
        self.max_entries = max_entries
        self._kept: OrderedDict[str, Score] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Score | None:
        """The score under this key; None if there is none."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: str, score: Score) -> None:
        """Keep a score."""
        with self._lock:
            self._kept[key] = score
            self._kept.move_to_end(key)
            while len(self._kept) > self.max_entries:
                self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)


class DirectoryCache:
    """Scores on disk, a file each, which any number of processes may share.

    A file is there whole or not at all. One that is damaged counts as none, and is written anew.
    Nothing is ever removed: delete the directory.

    Args:
        path: The directory; it is made where there is none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> Score | None:
        """The score under this key; None if there is none."""
        file = self._file(key)
        try:
            found = read_json(file.read_bytes())
            if found["key"] != key:
                raise ValueError("it is of another key")
            return scored_as(found["value"], found["components"], found["step_rewards"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:  # `Unscored` is a ValueError
            logger.warning("%s cannot be read, and is written anew: %s", file, error)
            return None

    def put(self, key: str, score: Score) -> None:
        """Keep a score."""
        shares = None if score.step_rewards is None else list(score.step_rewards)
        parts = dict(score.components)
        data = {"key": key, "value": score.value, "components": parts, "step_rewards": shares}
        try:
            self._write(self._file(key), json.dumps(data))
        except OSError as error:  # a full disk costs no more than scoring it again
            logger.warning("a score could not be kept: %s", error)

    def _write(self, file: Path, text: str) -> None:
        file.parent.mkdir(exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=file.parent, prefix=".")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            os.replace(partial, file)
        except BaseException:
            os.unlink(partial)
            raise

    def _file(self, key: str) -> Path:
        return self.path / key[:2] / f"{key}.json"


def cache_of(cache: ScoreCache | str | os.PathLike[str] | int | None) -> ScoreCache | None:
    """The cache that is meant: one, the directory of one, or how many scores one in memory has.

    Raises:
        ValueError: It is to hold no scores.
    """
    if isinstance(cache, str | os.PathLike):
        return DirectoryCache(cache)
    return MemoryCache(cache) if isinstance(cache, int) else cache
