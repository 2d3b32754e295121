"""Caches of scores, so that equal episodes are scored once."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, Protocol

from openenv._internal.json import read_json
from openenv._internal.replacing import replacing
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory
from openenv.rewards.external.scorers import canonical_json, make_score, trajectory_to_json

logger = logging.getLogger(__name__)

MAX_ENTRIES = 10_000


class ScoreCache(Protocol):
    """The interface of a store of scores, with methods that any thread may call."""

    def get(self, key: str) -> Score | None:
        """Return the score stored under this key, or None."""
        ...

    def put(self, key: str, score: Score) -> None:
        """Store a score."""
        ...


def cache_key(identity: str, trajectory: Trajectory[Any, Any]) -> str:
    """Return the cache key of a score: the SHA-256 of the scorer's identity and the episode."""
    return hashlib.sha256(canonical_json([identity, trajectory_to_json(trajectory)])).hexdigest()


class MemoryCache:
    """A cache of scores in memory that drops the least recently used score first.

    Args:
        max_entries: Maximum number of scores. Default: 10,000.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        if max_entries < 1:
            raise ValueError(f"max_entries must be at least 1, not {max_entries}")
        self.max_entries = max_entries
        self._kept: OrderedDict[str, Score] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Score | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: str, score: Score) -> None:
        with self._lock:
            self._kept[key] = score
            self._kept.move_to_end(key)
            while len(self._kept) > self.max_entries:
                self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)


class DirectoryCache:
    """A cache of scores in files that any number of processes may share.

    Files are written atomically. A damaged file counts as missing and is rewritten. The cache never
    removes files; delete the directory to empty the cache.

    Args:
        path: The directory; created if necessary.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> Score | None:
        file = self._file(key)
        try:
            found = read_json(file.read_bytes())
            if found["key"] != key:
                raise ValueError("it is of another key")
            return make_score(found["value"], found["components"], found["step_rewards"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:  # `Unscored` is a ValueError
            logger.warning("%s cannot be read and will be rewritten: %s", file, error)
            return None

    def put(self, key: str, score: Score) -> None:
        shares = None if score.step_rewards is None else list(score.step_rewards)
        parts = dict(score.components)
        data = {"key": key, "value": score.value, "components": parts, "step_rewards": shares}
        try:
            file = self._file(key)
            file.parent.mkdir(exist_ok=True)
            with replacing(file) as partial:
                partial.touch(mode=0o600, exist_ok=False)  # only this user reads scores
                partial.write_text(json.dumps(data), encoding="utf-8")
        except OSError as error:  # without a cache the episode is scored again
            logger.warning("a score could not be kept: %s", error)

    def _file(self, key: str) -> Path:
        return self.path / key[:2] / f"{key}.json"


def open_cache(cache: ScoreCache | str | os.PathLike[str] | int | None) -> ScoreCache | None:
    """Return the cache that `cache` describes: a cache, a directory, or a size in memory."""
    if isinstance(cache, str | os.PathLike):
        return DirectoryCache(cache)
    return MemoryCache(cache) if isinstance(cache, int) else cache
