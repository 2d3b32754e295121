"""The good environment with one thing wrong: a class for each check that is to find it.

Each is made anew for each server, so that what it keeps on the class is that server's alone.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from random import Random
from typing import ClassVar

from openenv.reward import Score

from ..models import SignAction, SignObservation
from .environment import DRIVE, SIGNS, SignpostEnvironment

__all__ = ["MUTANTS"]

Made = Callable[[], type[SignpostEnvironment]]

MUTANTS: dict[str, Made] = {}


def _mutant(name: str) -> Callable[[Made], Made]:
    def noted(made: Made) -> Made:
        MUTANTS[name] = made
        return made

    return noted


# ------------------------------------------------------------------ runtime


@_mutant("runtime.startup")
def does_not_start() -> type[SignpostEnvironment]:
    raise RuntimeError("the weights are missing")


@_mutant("runtime.observation_schema")
def sends_what_it_has_not_declared() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def observe(self) -> SignObservation:
            seen = super().observe()
            return SignObservation.model_construct(**{**seen.__dict__, "left": "some"})

    return Mutant


@_mutant("runtime.state_contract")
def counts_steps_from_1() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def begin(self, seed: int | None, episode_id: str | None) -> None:
            super().begin(seed, episode_id)
            self.count = 1

    return Mutant


@_mutant("runtime.reward_well_formed")
def rewards_with_true() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def step(self, action: SignAction) -> SignObservation:  # type: ignore[override]
            seen = super().step(action)
            return seen.model_copy(update={"reward": True}) if action.say == "hello" else seen

    return Mutant


@_mutant("runtime.rubric_introspectable")
def says_nothing_of_its_reward() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        REWARD = None

    return Mutant


@_mutant("runtime.reward_attribution")
def says_nothing_of_the_parts() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def made(self, right: float, whole: float) -> Score:
            return Score(right + whole)

    return Mutant


@_mutant("runtime.reward_contract")
def has_parts_that_do_not_add_up() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def step(self, action: SignAction) -> SignObservation:  # type: ignore[override]
            seen = super().step(action)
            parts = seen.metadata.get("reward_info", {}).get("components")
            if parts:
                seen.metadata["reward_info"] = {"components": {**parts, "right": 0.05}}
            return seen

    return Mutant


@_mutant("runtime.task_declaration_accuracy")
def counts_one_task_too_many() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def num_tasks(self, split: str) -> int:
            return super().num_tasks(split) + 1

    return Mutant


@_mutant("runtime.seed_control")
def takes_no_seed() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def reset(  # type: ignore[override]
            self, episode_id: str | None = None, task: str | None = None
        ) -> SignObservation:
            return super().reset(7, episode_id, task)

    return Mutant


@_mutant("runtime.episode_determinism")
def shows_the_time() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def observe(self) -> SignObservation:
            seen = super().observe()
            seen.metadata["at"] = time.time_ns()
            return seen

    return Mutant


@_mutant("runtime.episode_isolation")
def keeps_something_of_the_last_episode() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        mood = 0

        def begin(self, seed: int | None, episode_id: str | None) -> None:
            super().begin(seed, episode_id)
            self.signs = [SIGNS[(SIGNS.index(sign) + self.mood) % 4] for sign in self.signs]
            self.mood += 1

    return Mutant


@_mutant("runtime.session_isolation")
def shares_its_signs_with_all_sessions() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        shared: ClassVar[list[str]] = []

        def begin(self, seed: int | None, episode_id: str | None) -> None:
            super().begin(seed, episode_id)
            self.shared[:] = self.signs

        def observe(self) -> SignObservation:
            if self.task is None and self.shared:
                self.signs = list(self.shared)
            return super().observe()

    return Mutant


@_mutant("runtime.trajectory_record")
def records_nothing() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        RECORDS = False

    return Mutant


@_mutant("runtime.latency")
def has_all_sessions_wait_for_each_other() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        turn = threading.Lock()
        alive: ClassVar[set[int]] = set()

        def begin(self, seed: int | None, episode_id: str | None) -> None:
            super().begin(seed, episode_id)
            self.alive.add(id(self))

        def close(self) -> None:
            self.alive.discard(id(self))

        def step(self, action: SignAction) -> SignObservation:  # type: ignore[override]
            with self.turn:
                time.sleep(0.2 if len(self.alive) > 5 else 0.0)
                return super().step(action)

    return Mutant


@_mutant("runtime.memory")
def keeps_every_episode() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        kept: ClassVar[list[bytes]] = []

        def begin(self, seed: int | None, episode_id: str | None) -> None:
            super().begin(seed, episode_id)
            self.kept.append(os.urandom(2**18))

    return Mutant


# ------------------------------------------------------------------ semantic


@_mutant("semantic.oracle_max")
def forgets_what_all_are_worth() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def score(self) -> Score:
            return self.made(0.8 * self.right / DRIVE, 0.0)

    return Mutant


@_mutant("semantic.floor_gap")
def pays_for_nothing() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def score(self) -> Score:
            return self.made(0.6 + 0.2 * self.right / DRIVE, 0.2 * (self.right == DRIVE))

    return Mutant


@_mutant("semantic.canary_floor")
def takes_politeness_for_an_answer() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def is_right(self, word: str, sign: str) -> bool:
            return word == "please" or super().is_right(word, sign)

    return Mutant


@_mutant("semantic.no_solution_leakage")
def writes_the_word_on_the_sign() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def observe(self) -> SignObservation:
            seen = super().observe()
            return seen.model_copy(update={"sign": f"{seen.sign}: say {self.state.word}"})

    return Mutant


@_mutant("semantic.verifier_determinism")
def is_of_two_minds() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def score(self) -> Score:
            whole = self.right == DRIVE
            doubt = int.from_bytes(os.urandom(4), "big") / 2**32 * 0.04 if whole else 0.0
            return self.made(0.8 * self.right / DRIVE - doubt, 0.2 * whole)

    return Mutant


@_mutant("semantic.verifier_portability")
def asks_for_the_time_zone() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def score(self) -> Score:
            moved = 0.03 * (self.machine.get("TZ") == "Pacific/Chatham")
            return self.made((0.8 - moved) * self.right / DRIVE, 0.2 * (self.right == DRIVE))

    return Mutant


@_mutant("semantic.replayability")
def gives_a_number_to_every_success() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def observe(self) -> SignObservation:
            seen = super().observe()
            if len(self.said) == DRIVE == self.right:
                seen.metadata["receipt"] = os.urandom(4).hex()
            return seen

    return Mutant


@_mutant("semantic.monotonicity")
def punishes_being_nearly_there() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def score(self) -> Score:
            return self.made(0.05, 0.0) if self.right == DRIVE - 1 else super().score()

    return Mutant


@_mutant("semantic.hacking_probes")
def is_impressed_by_length() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def is_right(self, word: str, sign: str) -> bool:
            return len(word) > 10_000 or super().is_right(word, sign)

    return Mutant


# ------------------------------------------------------------------ learning


@_mutant("learning.curve")
def shows_other_signs_than_it_means() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def observe(self) -> SignObservation:
            seen = super().observe()
            shown = Random(f"{self.seed} {self.task} {seen.left}").choice(SIGNS)
            return seen.model_copy(update={"sign": shown if seen.sign else ""})

    return Mutant


@_mutant("learning.group_signal")
def asks_for_what_nobody_would_try() -> type[SignpostEnvironment]:
    class Mutant(SignpostEnvironment):
        def word(self, sign: str) -> str:
            return f"{super().word(sign)} {Random(str(self.seed)).randrange(10**6)}"

    return Mutant


# ------------------------------------------------------------------ what no check alone is for


@_mutant("noise")
def rewards_by_the_dice() -> type[SignpostEnvironment]:
    """The reward is drawn: the same for the same seed and words, and of no other use."""

    class Mutant(SignpostEnvironment):
        def score(self) -> Score:
            drawn = hashlib.blake2b(f"{self.seed} {self.said}".encode(), digest_size=8).digest()
            return self.made(int.from_bytes(drawn, "big") / 2**64, 0.0)

    return Mutant
