"""Task sets: training games, unseen games, and variations of games.

`train` and `test` are the 5 and the 50 games of Bellemare et al. 2013. `atari57` is the set on
which Rainbow (Hessel et al. 2018), Agent57 and most later work report. `variations` are the modes
and difficulties of Farebrother et al. 2018, "Generalization and Regularization in DQN",
arXiv:1810.00123; the first of each game is meant for training. Sticky actions and the limit are
those of Machado et al. 2018, JAIR 61, and of Gymnasium's `ALE/...-v5`.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from types import MappingProxyType

from openenv.errors import Refused

from ..models import AtariTask
from .games import GAMES, did_you_mean

__all__ = ["SPLITS", "find_task", "tasks_of"]

STICKINESS = 0.25

TRAIN = ("asterix", "beam_rider", "freeway", "seaquest", "space_invaders")

# fmt: off
TEST = (
    "alien", "amidar", "assault", "asteroids", "atlantis", "bank_heist", "battle_zone", "berzerk",
    "bowling", "boxing", "breakout", "carnival", "centipede", "chopper_command", "crazy_climber",
    "demon_attack", "double_dunk", "elevator_action", "enduro", "fishing_derby", "frostbite",
    "gopher", "gravitar", "hero", "ice_hockey", "jamesbond", "journey_escape", "kangaroo",
    "krull", "kung_fu_master", "montezuma_revenge", "ms_pacman", "name_this_game", "pong",
    "pooyan", "private_eye", "qbert", "riverraid", "road_runner", "robotank", "skiing",
    "star_gunner", "tennis", "time_pilot", "tutankham", "up_n_down", "venture", "video_pinball",
    "wizard_of_wor", "zaxxon",
)
# fmt: on

_NOT_IN_ATARI57 = {"carnival", "elevator_action", "journey_escape", "pooyan"}
_ONLY_IN_ATARI57 = ("defender", "phoenix", "pitfall", "solaris", "surround", "yars_revenge")
ATARI57 = sorted({*TRAIN, *TEST, *_ONLY_IN_ATARI57} - _NOT_IN_ATARI57)

# The modes and difficulties of each varied game.
VARIED = {
    "freeway": (range(8), (0, 1)),
    "hero": (range(5), (0,)),
    "breakout": (range(0, 48, 4), (0, 1)),
    "space_invaders": (range(16), (0, 1)),
}

# The scores of random play and of a human: Mnih et al. 2015, Extended Data Table 2.
SCORES = {
    "alien": (227.8, 6875),
    "amidar": (5.8, 1676),
    "assault": (222.4, 1496),
    "asterix": (210, 8503),
    "asteroids": (719.1, 13157),
    "atlantis": (12850, 29028),
    "bank_heist": (14.2, 734.4),
    "battle_zone": (2360, 37800),
    "beam_rider": (363.9, 5775),
    "bowling": (23.1, 154.8),
    "boxing": (0.1, 4.3),
    "breakout": (1.7, 31.8),
    "centipede": (2091, 11963),
    "chopper_command": (811, 9882),
    "crazy_climber": (10781, 35411),
    "demon_attack": (152.1, 3401),
    "double_dunk": (-18.6, -15.5),
    "enduro": (0, 309.6),
    "fishing_derby": (-91.7, 5.5),
    "freeway": (0, 29.6),
    "frostbite": (65.2, 4335),
    "gopher": (257.6, 2321),
    "gravitar": (173, 2672),
    "hero": (1027, 25763),
    "ice_hockey": (-11.2, 0.9),
    "jamesbond": (29, 406.7),
    "kangaroo": (52, 3035),
    "krull": (1598, 2395),
    "kung_fu_master": (258.5, 22736),
    "montezuma_revenge": (0, 4367),
    "ms_pacman": (307.3, 15693),
    "name_this_game": (2292, 4076),
    "pong": (-20.7, 9.3),
    "private_eye": (24.9, 69571),
    "qbert": (163.9, 13455),
    "riverraid": (1339, 13513),
    "road_runner": (11.5, 7845),
    "robotank": (2.2, 11.9),
    "seaquest": (68.4, 20182),
    "space_invaders": (148, 1652),
    "star_gunner": (664, 10250),
    "tennis": (-23.8, -8.9),
    "time_pilot": (3568, 5925),
    "tutankham": (11.4, 167.6),
    "up_n_down": (533.4, 9082),
    "venture": (0, 1188),
    "video_pinball": (16257, 17298),
    "wizard_of_wor": (563.5, 4757),
    "zaxxon": (32.5, 9173),
}


def _game(name: str) -> AtariTask:
    random_score, human_score = SCORES.get(name, (None, None))
    return AtariTask(
        id=name,
        game_name=name,
        repeat_action_probability=STICKINESS,
        random_score=random_score,
        human_score=human_score,
    )


def _variation(name: str, mode: int, difficulty: int) -> AtariTask:
    return AtariTask(
        id=f"{name}/mode-{mode}/difficulty-{difficulty}",
        game_name=name,
        mode=mode,
        difficulty=difficulty,
        repeat_action_probability=STICKINESS,
    )


SPLITS = MappingProxyType(
    {
        "train": tuple(map(_game, TRAIN)),
        "test": tuple(map(_game, TEST)),
        "atari57": tuple(map(_game, ATARI57)),
        "all": tuple(map(_game, GAMES)),
        "variations": tuple(
            _variation(name, mode, difficulty)
            for name, (modes, difficulties) in VARIED.items()
            for mode, difficulty in product(modes, difficulties)
        ),
    }
)
"""The tasks of each split."""


def tasks_of(split: str) -> tuple[AtariTask, ...]:
    """Return the tasks of a split, or raise `Refused` if the split is unknown."""
    try:
        return SPLITS[split]
    except KeyError:
        raise Refused(f"unknown split {split!r}{did_you_mean(split, SPLITS)}") from None


def find_task(task_id: str) -> AtariTask:
    """Return the task of an id, or raise `Refused` if the id is unknown."""
    known = _by_id()
    if task_id not in known:
        raise Refused(f"unknown task {task_id!r}{did_you_mean(task_id, known)}")
    return known[task_id]


@cache
def _by_id() -> dict[str, AtariTask]:
    return {task.id: task for tasks in SPLITS.values() for task in tasks}
