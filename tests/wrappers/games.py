"""Small environments of other libraries, for tests."""

from __future__ import annotations

from typing import Any

import dm_env  # type: ignore[import-untyped]
import gymnasium
import numpy as np
from dm_env import specs
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv  # type: ignore[import-untyped]


class Corridor(gymnasium.Env[dict[str, Any], int]):
    """Walk along a corridor to its end; what is seen is one array that is written again.

    It has a thermometer as well.
    """

    metadata = {"render_modes": ["ansi", "rgb_array", "human"]}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self, length: int = 3, render_mode: str | None = None) -> None:
        self.length = length
        self.render_mode = render_mode
        self.action_space: Any = spaces.Discrete(2, start=1)
        self.observation_space = spaces.Dict(
            {"place": spaces.Box(0, length, (1,), np.int64), "heat": spaces.Discrete(100)}
        )
        self.place = np.zeros(1, np.int64)

    def get_action_meanings(self) -> list[str]:
        return ["STAY", "GO"]

    def _seen(self) -> dict[str, Any]:
        return {"place": self.place, "heat": self.np_random.integers(100)}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.place[0] = (options or {}).get("place", 0)
        return self._seen(), {"told": np.arange(2), "self": self}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.place += action - 1
        is_there = bool(self.place[0] >= self.length)
        return self._seen(), np.float32(is_there), is_there, False, {"n": np.int64(7)}

    def render(self) -> Any:
        if self.render_mode == "ansi":
            return "." * int(self.place[0])
        return np.full((2, 2, 3), self.place[0], np.uint8)


class Steering(gymnasium.Env[np.ndarray, np.ndarray]):
    """Steer within bounds; both flags end it at once."""

    def __init__(self, reward: float = 1.0) -> None:
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = spaces.Box(-9.0, 9.0, (2,), np.float32)
        self.reward = reward

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return action, self.reward, True, True, {}


class Nim(AECEnv):  # type: ignore[misc]
    """Two players take one or two of five sticks in turn; who takes the last one wins.

    Taking more than there are loses at once.
    """

    metadata = {"name": "nim_v0", "render_modes": ["ansi"]}  # noqa: RUF012 - as PettingZoo has it

    def __init__(self, sticks: int = 5, render_mode: str | None = None) -> None:
        super().__init__()
        self.sticks, self.render_mode = sticks, render_mode
        self.possible_agents = ["first", "second"]

    def observation_space(self, agent: str) -> Any:
        mask = spaces.MultiBinary(2)
        left = spaces.Box(0, 99, (1,), np.int64)
        return spaces.Dict({"observation": left, "action_mask": mask})

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def observe(self, agent: str) -> dict[str, Any]:
        mask = np.array([self.left >= 1, self.left >= 2], np.int8)
        return {"observation": np.array([self.left]), "action_mask": mask}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        rng = np.random.default_rng(seed)
        self.left = self.sticks if seed is None else int(rng.integers(3, 9))
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict(self.rewards)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
        self.agent_selection = "first"

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        assert action is not None
        other = self.possible_agents[agent == "first"]
        self.left -= action + 1
        self._clear_rewards()
        if self.left <= 0:
            sign = 1.0 if self.left == 0 else -1.0
            self.rewards = {agent: sign, other: -sign}
            self.terminations = dict.fromkeys(self.agents, True)
            self.left = 0
        self.agent_selection = other

    def render(self) -> str:
        return "|" * self.left


class Guess(ParallelEnv):  # type: ignore[misc]
    """Agents with different spaces guess at once; `b` leaves early, and time cuts off the rest."""

    metadata = {"name": "guess_v0", "render_modes": []}  # noqa: RUF012 - as PettingZoo has it

    def __init__(self, rounds: int = 3) -> None:
        self.rounds = rounds
        self.possible_agents = ["a", "b"]
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0.0, 9.0, (2,), np.float32) if agent == "a" else spaces.Discrete(9)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3) if agent == "a" else spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _seen(self) -> dict[str, Any]:
        both = {"a": np.full(2, self.time, np.float32), "b": np.int64(self.time)}
        return {agent: both[agent] for agent in self.agents}

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        self.time = 0
        self.agents = list(self.possible_agents)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.time += 1
        seen, agents = self._seen(), self.agents
        rewards = {agent: float(np.sum(actions[agent])) for agent in agents}
        terminations = {agent: agent == "b" and self.time == 2 for agent in agents}
        truncations = dict.fromkeys(agents, self.time == self.rounds)
        infos = {
            agent: {"action_mask": np.ones(3, np.int8)} if agent == "a" else {} for agent in agents
        }
        self.agents = [a for a in agents if not (terminations[a] or truncations[a])]
        return seen, rewards, terminations, truncations, infos


def env(sticks: int = 5) -> Nim:
    return Nim(sticks)


def parallel_env(rounds: int = 3) -> Guess:
    return Guess(rounds)


class Catch(dm_env.Environment):  # type: ignore[misc]
    """Catch what falls; the generator is the constructor's."""

    def __init__(self, rows: int = 3, seed: int = 0, limit: int | None = None) -> None:
        self.rows, self.limit = rows, limit
        self.rng = np.random.default_rng(seed)

    def action_spec(self) -> Any:
        return specs.DiscreteArray(3, name="move")

    def observation_spec(self) -> Any:
        ball = specs.BoundedArray((2,), np.int32, 0, [self.rows, 9], name="ball")
        return {"ball": ball, "wind": specs.Array((), np.float64), "word": specs.StringArray(())}

    def _seen(self) -> dict[str, Any]:
        return {"ball": np.array([self.row, self.column], np.int32), "wind": 0.5, "word": "fall"}

    def reset(self) -> dm_env.TimeStep:
        self.row, self.column = 0, int(self.rng.integers(3))
        return dm_env.restart(self._seen())

    def step(self, action: int) -> dm_env.TimeStep:
        self.row += 1
        if self.row == self.limit:
            return dm_env.truncation(0.0, self._seen())
        if self.row == self.rows:
            return dm_env.termination(float(action == self.column), self._seen())
        return dm_env.transition(0.0, self._seen())


def falling(**arguments: Any) -> Catch:
    """One that takes a seed within a dict."""
    task = arguments.pop("task", {})
    return Catch(**arguments, seed=task.get("random", 5))
