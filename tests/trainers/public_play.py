"""Play by public files of SkyRL or of ART, unmodified; by a Python that has the trainer.

    python public_play.py skyrl ENV_PY '{"echo_env": {"address": ..., "said": [...]}, ...}'
    python public_play.py art OPENENV_MDX '{"model": ..., "echo": ...}'

A client of a server that runs stands in for one of a container that is started. Prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # where `envs` is


# ------------------------------------------------------------------ SkyRL


def skyrl(file: str, episodes: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Play each episode by SkyRL's class of an environment, as its generator makes and calls it.

    The class imports all environments that it may be asked for; that of traffic lights is none of
    ours.
    """
    import envs.atari_env
    import envs.coding_env
    import envs.echo_env
    import envs.finrl_env
    import envs.openspiel_env
    import skyrl_gym  # type: ignore[import-not-found]

    absent: Any = ModuleType("envs.sumo_rl_env")
    absent.SumoRLEnv = absent.SumoAction = None
    sys.modules["envs.sumo_rl_env"] = absent
    clients = {
        "echo_env": envs.echo_env.EchoEnv,
        "coding_env": envs.coding_env.CodingEnv,
        "openspiel-env": envs.openspiel_env.OpenSpielEnv,
        "atari-env": envs.atari_env.AtariEnv,
        "finrl-env": envs.finrl_env.FinRLEnv,
    }

    def at_hand(client: Any, name: str) -> None:
        def from_docker_image(image: str) -> Any:
            assert image == f"{name}:latest"
            return client(base_url=episodes[name]["address"])

        client.from_docker_image = from_docker_image

    for name, client in clients.items():
        at_hand(client, name)
    sys.path.insert(0, str(Path(file).parent))
    skyrl_gym.envs.register(id="openenv", entry_point=f"{Path(file).stem}:OpenEnv")
    found: dict[str, list[dict[str, Any]]] = {}
    for name, episode in episodes.items():
        extras = {"env_name": name, "max_turns": 3, **episode.get("extras", {})}
        env = skyrl_gym.make("openenv", env_config={}, extras=extras)
        env.init([{"role": "user", "content": "Act."}])
        found[name] = [dict(env.step(said)) for said in episode["said"]]
        for step in found[name]:
            step["metadata"] = {}  # holds the action, which is no JSON
        env.close()
    return found


# ------------------------------------------------------------------ ART


def art(file: str, addresses: dict[str, str]) -> list[list[float]]:
    """Gather groups by the rollout of ART's page, whose clients are kept from group to group."""
    (code,) = re.findall(
        r"^```python\n(.*?)^```$", Path(file).read_text(), re.DOTALL | re.MULTILINE
    )
    page: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, file, "exec"), page)
    return asyncio.run(gathered(page, addresses))


async def gathered(page: dict[str, Any], addresses: dict[str, str]) -> list[list[float]]:
    library = page["art"]
    model = library.Model(
        name="toy",
        project="tests",
        inference_api_key="none",
        inference_base_url=f"{addresses['model']}/v1",
        inference_model_name="toy",
        report_metrics=[],
    )
    clients = [
        page["EchoEnv"](base_url=addresses["echo"]) for _ in range(page["ROLLOUTS_PER_GROUP"])
    ]
    rewards = []
    for _ in range(2):
        (group,) = await library.gather_trajectory_groups(
            [library.TrajectoryGroup(page["rollout"](model, client) for client in clients)],
            pbar_desc=None,
        )
        rewards.append([one.reward for one in group.trajectories])
    for client in clients:
        await asyncio.to_thread(client.close)
    return rewards


if __name__ == "__main__":
    way, program, given = sys.argv[1:]
    play = skyrl if way == "skyrl" else art
    played: Any = play(program, json.loads(given))
    sys.stdout.write("\n" + json.dumps(played) + "\n")
