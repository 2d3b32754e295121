"""Episodes of a game: recorded actions, checkpoints and replay.

The states that ALE's emulator saves leave out registers of the graphics chip, and in some games
rewards. In a few games (Q*bert, Tetris, Yars' Revenge) a restored state occasionally continues
differently. So an episode is defined by its seed and its actions. A saved state only shortens a
replay, and is used only if the rest of the replay has the expected result.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from ale_py import Action, ALEState

from ..models import AtariSetting
from .games import Console

__all__ = ["Checkpoint", "Episode", "generator_seed"]

# Saving a state takes 0.1 ms, once in this many steps. At least this many steps are replayed after
# a checkpoint, because the parts that a state lacks may show only after some frames. So restoring
# an episode replays at most twice this many steps.
STEPS_A_CHECKPOINT = 16

_DRAWS_A_BLOCK = 512


class Checkpoint(NamedTuple):
    """A position in an episode, with the emulator's state.

    Attributes:
        steps: Steps before it.
        frames: Frames of these steps.
        held: The action that a sticky frame repeats.
        score: The sum of the rewards.
        state: The emulator's state.
    """

    steps: int
    frames: int
    held: int
    score: float
    state: ALEState


class Episode:
    """A running episode.

    Args:
        console: The console that plays the game; the constructor switches it on.
        setting: The options, with a mode and difficulty that the game has.
        seed: Determines which actions stick, as in ALE; 0 to 2**32 - 1.

    Attributes:
        actions: The ids of the actions so far, one byte each.
        action_set: ALE's action for each id.
        meanings: The name of the action for each id.
        score: The sum of the rewards.
    """

    def __init__(self, console: Console, setting: AtariSetting, seed: int) -> None:
        console.switch_on(setting.mode, setting.difficulty)
        self.console = console
        self.setting = setting
        self.seed = seed
        self.actions = bytearray()
        self.action_set: Sequence[Action] = console.actions(setting.full_action_space)
        self.meanings = [action.name for action in self.action_set]
        self.score = 0.0
        self._checkpoints: deque[Checkpoint] = deque(maxlen=2)
        self._frames = 0
        self._held: Action = Action.NOOP
        self._draws = _draw_numbers(seed, skipped=0)
        # ALE keeps the probability in single precision.
        self._stickiness = float(np.float32(setting.repeat_action_probability))

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The latest checkpoint that is at least `STEPS_A_CHECKPOINT` steps old, or None."""
        return self._checkpoints[0] if len(self._checkpoints) == 2 else None

    @property
    def is_over(self) -> bool:
        """Whether the game has ended."""
        over: bool = self.console.ale.game_over(with_truncation=False)
        return over

    @property
    def is_truncated(self) -> bool:
        """Whether the limit on frames is reached."""
        return self._frames > 0 and self._frames_left() <= 0

    def play(self, action_id: int) -> float:
        """Hold an action for `frameskip` frames or to the end, and return the points."""
        steps = len(self.actions)
        if steps and steps % STEPS_A_CHECKPOINT == 0:
            self._checkpoints.append(self._make_checkpoint(steps))
        self.actions.append(action_id)
        reward = self._hold(self.action_set[action_id])
        self.score += reward
        return reward

    def _hold(self, action: Action) -> float:
        ale = self.console.ale
        is_sticky = self._stickiness > 0
        reward = 0.0
        # An episode has at least one frame, even if its start uses up the limit.
        for _ in range(min(self.setting.frameskip, max(1, self._frames_left()))):
            reward += ale.act(self._next_held_action(action) if is_sticky else action)
            self._frames += 1
            if ale.game_over(with_truncation=False):
                break
        return reward

    def _next_held_action(self, action: Action) -> Action:
        """Draw the action of the next frame, as ALE does.

        ALE does not reveal the action that it holds, so an episode that used ALE's own sticky
        actions could not be continued from a checkpoint.
        """
        if next(self._draws) >= self._stickiness:
            self._held = action
        return self._held

    def _frames_left(self) -> int:
        """Return the number of frames to the limit; without a limit, the frames of one step."""
        setting = self.setting
        if not setting.max_frames:
            return setting.frameskip
        return setting.max_frames - int(self.console.ale.getEpisodeFrameNumber())

    def _make_checkpoint(self, steps: int) -> Checkpoint:
        state = self.console.ale.cloneSystemState()
        return Checkpoint(steps, self._frames, self._held.value, self.score, state)

    def replay(self, actions: bytes, checkpoint: Checkpoint | None = None) -> None:
        """Replay an episode with the same setting and seed, from a checkpoint if there is one.

        Raises:
            ValueError: The game does not have one of the actions, or an action follows its end.
        """
        begun = 0
        if checkpoint is not None:
            begun = checkpoint.steps
            self.actions[:] = actions[:begun]
            self._restore_checkpoint(checkpoint)
        for action_id in actions[begun:]:
            if self.is_over or self.is_truncated:
                raise ValueError("actions follow the end of the game")
            if action_id >= len(self.action_set):
                raise ValueError(f"{action_id} is no action of {self.console.game_name}")
            self.play(action_id)

    def _restore_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.console.ale.restoreSystemState(checkpoint.state)
        self.score = checkpoint.score
        self._frames = checkpoint.frames
        self._held = Action(checkpoint.held)
        self._draws = _draw_numbers(self.seed, skipped=checkpoint.frames)

    def digest(self) -> str:
        """Return a hash of the screen, memory, lives, frames and score, in hexadecimal digits."""
        ale = self.console.ale
        numbers = (ale.lives(), ale.getFrameNumber(), ale.getEpisodeFrameNumber(), self.score)
        seen = hashlib.sha256(repr((*numbers, self.is_over)).encode())
        seen.update(ale.getRAM().data)
        seen.update(ale.getScreen().data)
        return seen.hexdigest()


def generator_seed(seed: int | None) -> int:
    """Return the seed of the generator of sticky actions.

    Gymnasium's `ALE/...-v5` derives the same value, so that a seed gives the same episode there.

    Args:
        seed: Any integer; None draws one.
    """
    # SeedSequence takes no negative numbers, and -1 must not be the same seed as 1.
    entropy = [-seed, 1] if seed is not None and seed < 0 else seed
    return int(np.random.SeedSequence(entropy).generate_state(2)[1])


def _draw_numbers(seed: int, skipped: int) -> Iterator[float]:
    """Yield a number from 0 to 1 per frame that decides whether the frame's action sticks.

    ALE draws from a 32-bit Mersenne Twister, two numbers per frame, the second for a second player.
    """
    return islice(_generate_numbers(seed), skipped, None)


def _generate_numbers(seed: int) -> Iterator[float]:
    twister = np.random.RandomState(seed)
    while True:
        both = twister.randint(0, 2**32, size=2 * _DRAWS_A_BLOCK, dtype=np.uint32)
        yield from (both[::2] / 2**32).tolist()
