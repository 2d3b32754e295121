"""Checks that the rollouts of a group begin alike.

A trainer compares the rewards of a group's rollouts with each other. If the rollouts begin
differently, it compares luck: a hand of two aces with a hand of two fives. Therefore the first
observations of all episodes that were begun with the same arguments are compared.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from openenv.errors import OpenEnvError

MOST = 4096  # maximum number of groups remembered; the oldest is forgotten first
MOST_CHARACTERS = 64 * 2**20  # maximum size of their observations; the oldest goes first
SHOWN = 300  # characters of each beginning that an error shows


class UnequalBeginnings(OpenEnvError, RuntimeError):
    """Two episodes that were reset with the same arguments have begun differently."""


def digest_of(arguments: Mapping[str, Any]) -> str:
    """Return a digest of reset arguments; equal arguments have equal digests in every process."""
    written = json.dumps(arguments, sort_keys=True, default=repr)
    return hashlib.blake2b(written.encode(), digest_size=16).hexdigest()


class Beginnings:
    """The first observations of episodes, by the arguments of their resets.

    Args:
        environment: The environment's name, for error messages.
        is_on: Compare beginnings.
    """

    def __init__(self, environment: str, *, is_on: bool = True) -> None:
        self._environment = environment
        self.is_on = is_on
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, str] = OrderedDict()
        self._characters = 0  # of the values of `_seen`

    def forget(self) -> None:
        """Forget the first observations of earlier episodes, at the beginning of a new batch."""
        with self._lock:
            self._seen.clear()
            self._characters = 0

    def saw(self, arguments: str, shown: str) -> None:
        """Note the first observation of an episode, and compare it with earlier episodes.

        Args:
            arguments: Digest of the reset's arguments; see `digest_of`.
            shown: The first observation, as the agent sees it.

        Raises:
            UnequalBeginnings: An earlier episode with the same arguments has begun differently.
        """
        if not self.is_on:
            return
        with self._lock:
            before = self._seen.get(arguments)
            if before is None:
                before = self._seen[arguments] = shown
                self._characters += len(shown)
            while len(self._seen) > MOST or self._characters > MOST_CHARACTERS:
                self._characters -= len(self._seen.popitem(last=False)[1])
        if before != shown:
            raise UnequalBeginnings(
                f"two rollouts of one group begin differently in {self._environment}, though both "
                "were reset with the same arguments: the environment ignores its seed, or what it "
                "shows is random or changes with time. Their rewards cannot be compared. Make the "
                "environment's reset take `seed` and draw from it alone, or name in `shows` the "
                "fields that do not change, or pass equal_beginnings=False to train all the same. "
                f"One begins {_part(before, shown)!r}, the other {_part(shown, before)!r}"
            )


def _part(text: str, other: str) -> str:
    """Return the part of a text that differs from another text."""
    same = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), 0)
    begin = max(0, same - SHOWN // 3)
    return text[begin : begin + SHOWN]
