"""One play of a game: what has been done in it, and how it is done again.

What an emulator of ALE says of its state leaves things out: registers of the graphics chip, and in
some games rewards. A state that is put back continues otherwise in a few games (Q*bert, Tetris,
Yars' Revenge), once in a while. So an episode is its seed and its actions, and a state only
a short cut, which is taken where the play that follows it comes out as it did.
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

# A state costs a tenth of a millisecond to write, shared between so many steps. As many follow the
# checkpoint at least, since what it has left out may show after some frames only; to go back to a
# place takes twice as many at most.
STEPS_A_CHECKPOINT = 16

_DRAWS_A_BLOCK = 512


class Checkpoint(NamedTuple):
    """Where an episode stood.

    Attributes:
        steps: Steps before it.
        frames: Frames of these steps.
        held: The action that sticky actions would go on with.
        score: The sum of the rewards.
        state: The emulator's.
    """

    steps: int
    frames: int
    held: int
    score: float
    state: ALEState


class Episode:
    """A running game.

    Args:
        console: Plays it; it is switched on.
        setting: Whose mode and difficulty fit the console.
        seed: Determines which actions stick, as in ALE; 0 to 2**32 - 1.

    Attributes:
        actions: The actions that were taken, one byte each.
        action_set: What each id of an action means.
        meanings: Its names.
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
        self._draws = _draws(seed, skipped=0)
        # ALE keeps it in single precision.
        self._stickiness = float(np.float32(setting.repeat_action_probability))

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Where it stood `STEPS_A_CHECKPOINT` steps ago or more; None if there is no such."""
        return self._checkpoints[0] if len(self._checkpoints) == 2 else None

    @property
    def is_over(self) -> bool:
        """The game has ended."""
        over: bool = self.console.ale.game_over(with_truncation=False)
        return over

    @property
    def is_truncated(self) -> bool:
        """The limit on frames is reached."""
        return self._frames > 0 and self._frames_left() <= 0

    def play(self, action_id: int) -> float:
        """Hold an action for `frameskip` frames, or to the end; give what was scored."""
        steps = len(self.actions)
        if steps and steps % STEPS_A_CHECKPOINT == 0:
            self._checkpoints.append(self._stand(steps))
        self.actions.append(action_id)
        reward = self._hold(self.action_set[action_id])
        self.score += reward
        return reward

    def _hold(self, action: Action) -> float:
        ale = self.console.ale
        is_sticky = self._stickiness > 0
        reward = 0.0
        # An episode has a frame at least, however many its beginning takes.
        for _ in range(min(self.setting.frameskip, max(1, self._frames_left()))):
            reward += ale.act(self._stuck(action) if is_sticky else action)
            self._frames += 1
            if ale.game_over(with_truncation=False):
                break
        return reward

    def _stuck(self, action: Action) -> Action:
        """The action of the next frame.

        Drawn here as ALE draws it, which does not tell which action it holds, so that nobody
        could go on from there.
        """
        if next(self._draws) >= self._stickiness:
            self._held = action
        return self._held

    def _frames_left(self) -> int:
        """Frames to the limit; where there is none, as many as a step may have."""
        setting = self.setting
        if not setting.max_frames:
            return setting.frameskip
        return setting.max_frames - int(self.console.ale.getEpisodeFrameNumber())

    def _stand(self, steps: int) -> Checkpoint:
        state = self.console.ale.cloneSystemState()
        return Checkpoint(steps, self._frames, self._held.value, self.score, state)

    def play_again(self, actions: bytes, checkpoint: Checkpoint | None = None) -> None:
        """Do what another play of the same setting and seed has done, from its checkpoint on.

        Raises:
            ValueError: An action is none of this game, or follows its end.
        """
        begun = 0
        if checkpoint is not None:
            begun = checkpoint.steps
            self.actions[:] = actions[:begun]
            self._go_to(checkpoint)
        for action_id in actions[begun:]:
            if self.is_over or self.is_truncated:
                raise ValueError("actions follow the end of the game")
            if action_id >= len(self.action_set):
                raise ValueError(f"{action_id} is no action of {self.console.game_name}")
            self.play(action_id)

    def _go_to(self, checkpoint: Checkpoint) -> None:
        self.console.ale.restoreSystemState(checkpoint.state)
        self.score = checkpoint.score
        self._frames = checkpoint.frames
        self._held = Action(checkpoint.held)
        self._draws = _draws(self.seed, skipped=checkpoint.frames)

    def digest(self) -> str:
        """What two plays have in common that stand at the same place, as hexadecimal digits."""
        ale = self.console.ale
        numbers = (ale.lives(), ale.getFrameNumber(), ale.getEpisodeFrameNumber(), self.score)
        seen = hashlib.sha256(repr((*numbers, self.is_over)).encode())
        seen.update(ale.getRAM().data)
        seen.update(ale.getScreen().data)
        return seen.hexdigest()


def generator_seed(seed: int | None) -> int:
    """What the generator of sticky actions is begun with.

    Gymnasium's `ALE/...-v5` begins it with the same, so that a seed gives the same episode there.

    Args:
        seed: Any integer; None draws one.
    """
    # It takes no sign, and -1 shall not be the same as 1.
    entropy = [-seed, 1] if seed is not None and seed < 0 else seed
    return int(np.random.SeedSequence(entropy).generate_state(2)[1])


def _draws(seed: int, skipped: int) -> Iterator[float]:
    """The numbers of 0 to 1 by which frames go on with the action before.

    ALE's are those of a 32-bit Mersenne Twister, two a frame, the second for a second player.
    """
    return islice(_all_draws(seed), skipped, None)


def _all_draws(seed: int) -> Iterator[float]:
    twister = np.random.RandomState(seed)
    while True:
        both = twister.randint(0, 2**32, size=2 * _DRAWS_A_BLOCK, dtype=np.uint32)
        yield from (both[::2] / 2**32).tolist()
