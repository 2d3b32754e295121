"""Play as ART does; run by a Python that has it. Prints JSON.

python art_play.py MODEL_ADDRESS BUTTONS_ADDRESS ECHO_ADDRESS
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import art  # type: ignore[import-not-found]

from openenv.integrations.art import rollout


def as_told(group: Any) -> dict[str, Any]:
    trajectories = [
        {
            "reward": one.reward,
            "metrics": {name: one.metrics[name] for name in ("steps", "finished")},
            "messages": one.messages(),
            "choices": sum(not isinstance(said, dict) for said in one.messages_and_choices),
            "tools": one.tools and [tool["function"]["name"] for tool in one.tools],
        }
        for one in sorted(group.trajectories, key=lambda one: one.metadata["seed"])
    ]
    errors = sorted(f"{one.type}: {one.message}" for one in group.exceptions)
    return {"trajectories": trajectories, "errors": errors}


async def gathered(model: Any, address: str, seeds: list[int], **options: Any) -> dict[str, Any]:
    """One group; ART tolerates as many exceptions as there are trajectories."""
    (group,) = await art.gather_trajectory_groups(
        [
            art.TrajectoryGroup(
                rollout(model, address, reset={"seed": seed}, prompt="Obey.", **options)
                for seed in seeds
            )
        ],
        max_exceptions=len(seeds),
        pbar_desc=None,
    )
    return as_told(group)


async def intolerant(model: Any, address: str) -> str:
    try:
        await art.gather_trajectory_groups(
            [art.TrajectoryGroup([rollout(model, address, reset={"seed": 1})])], pbar_desc=None
        )
    except Exception as error:
        return type(error).__name__
    return "no error"


# ------------------------------------------------------------------ ART's own guide


async def theirs(model: Any, client: Any) -> Any:
    """The rollout of ART's page on OpenEnv, in its order and manner."""
    from envs.echo_env import EchoAction

    await asyncio.to_thread(client.reset)
    trajectory = art.Trajectory(messages_and_choices=[{"role": "system", "content": "Be long."}])
    done = await model.openai_client().chat.completions.create(
        model=model.get_inference_name(), messages=trajectory.messages()
    )
    said = (done.choices[0].message.content or "").strip()
    result = await asyncio.to_thread(client.step, EchoAction(message=said))
    trajectory.messages_and_choices.append(done.choices[0])
    trajectory.reward = result.reward
    return trajectory.finish()


async def by_their_guide(model: Any, address: str) -> list[list[float]]:
    """Clients are kept from step to step, and are called by whichever thread is free."""
    from envs.echo_env import EchoEnv

    clients = [EchoEnv(base_url=address) for _ in range(4)]
    rewards = []
    for _ in range(2):
        groups = await art.gather_trajectory_groups(
            [art.TrajectoryGroup(theirs(model, client) for client in clients)], pbar_desc=None
        )
        rewards.append([one.reward for one in groups[0].trajectories])
    for client in clients:
        await asyncio.to_thread(client.close)
    return rewards


async def main(llm: str, buttons: str, echo: str) -> dict[str, Any]:
    sys.path.insert(0, str(Path(__file__).parents[2]))  # where `envs` is
    model = art.Model(
        name="toy",
        project="tests",
        inference_api_key="none",
        inference_base_url=f"{llm}/v1",
        inference_model_name="toy",
        report_metrics=[],
    )
    everything = [0, 1, 2, 3, 4]
    return {
        "tools": await gathered(model, buttons, everything, max_turns=3),
        "words": await gathered(model, buttons, everything, max_turns=3, acts="words"),
        "left": await gathered(model, buttons, [3], max_turns=1, unfinished=-1.0),
        "intolerant": await intolerant(model, buttons),
        "gone": await gathered(model, "http://127.0.0.1:9", [0], retries=0),
        "theirs": await by_their_guide(model, echo),
    }


if __name__ == "__main__":
    told = asyncio.run(main(*sys.argv[1:]))
    sys.stdout.write("\n" + json.dumps(told) + "\n")
