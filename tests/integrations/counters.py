"""Small environments for several agents: who counts to the end is out, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv  # type: ignore[import-untyped]

AGENTS = ["ann", "bob", "cy"]
ENDS = {"ann": 3, "bob": 5, "cy": 4}


class Counters(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
    """Each agent adds 0 to 2; at its own end it is terminated, and all are truncated at step 9."""

    metadata = {"name": "counters", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        self.possible_agents = list(AGENTS)
        self._spaces = {name: spaces.Discrete(3) for name in AGENTS}
        self._seen = {
            name: spaces.Box(-10, 10, (i + 1,), np.float32) for i, name in enumerate(AGENTS)
        }

    def observation_space(self, agent: str) -> Any:
        return self._seen[agent]

    def action_space(self, agent: str) -> Any:
        return self._spaces[agent]

    def _observe(self, agent: str) -> Any:
        place = AGENTS.index(agent) + 1
        return np.full(place, self.counts[agent] + self.offset, np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None or not hasattr(self, "rng"):
            self.rng = np.random.default_rng(seed)
        self.offset = float(self.rng.integers(0, 4)) / 2
        self.agents, self.steps = list(AGENTS), 0
        self.counts = dict.fromkeys(AGENTS, 0)
        return {name: self._observe(name) for name in self.agents}, {n: {} for n in self.agents}

    def step(self, actions: Any) -> Any:
        self.steps += 1
        agents = self.agents
        for name in agents:
            self.counts[name] += int(actions[name])
        over = {name: self.counts[name] >= ENDS[name] for name in agents}
        late = {name: self.steps >= 9 and not over[name] for name in agents}
        self.agents = [name for name in agents if not (over[name] or late[name])]
        return (
            {name: self._observe(name) for name in agents},
            {name: float(actions[name]) / 2 for name in agents},
            over,
            late,
            {name: {"count": self.counts[name]} for name in agents},
        )


class Turns(AECEnv):  # type: ignore[misc]  # PettingZoo has no types
    """The same, one after the other; whoever adds 2 takes half a point from the next."""

    metadata = {"name": "turns", "render_modes": [], "is_parallelizable": False}  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = list(AGENTS)
        self._action = spaces.Discrete(3)
        self._seen = spaces.Dict(
            observation=spaces.Box(0, 99, (3,), np.int32), action_mask=spaces.MultiBinary(3)
        )

    def observation_space(self, agent: str) -> Any:
        return self._seen

    def action_space(self, agent: str) -> Any:
        return self._action

    def observe(self, agent: str) -> Any:
        mask = np.array([1, 1, self.steps % 2], np.int8)
        return {"observation": np.array(list(self.counts.values()), np.int32), "action_mask": mask}

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        first = int(np.random.default_rng(seed).integers(0, 3))
        self.agents, self.steps = list(AGENTS), 0
        self.counts = dict.fromkeys(AGENTS, first)
        self.rewards = dict.fromkeys(AGENTS, 0.0)
        self._cumulative_rewards = dict.fromkeys(AGENTS, 0.0)
        self.terminations = dict.fromkeys(AGENTS, False)
        self.truncations = dict.fromkeys(AGENTS, False)
        self.infos: dict[str, dict[str, int]] = {name: {} for name in AGENTS}
        self.agent_selection = AGENTS[0]

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self.steps += 1
        self._cumulative_rewards[agent] = 0.0
        self.counts[agent] += int(action)
        following = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.rewards[agent] += float(action)
        if action == 2:
            self.rewards[following] -= 0.5
        self.terminations[agent] = self.counts[agent] >= ENDS[agent]
        if self.steps >= 20:
            self.truncations = {n: not self.terminations[n] for n in self.agents}
        self.infos = {name: {"steps": self.steps} for name in self.agents}
        self._accumulate_rewards()
        self.agent_selection = following
        self._deads_step_first()
