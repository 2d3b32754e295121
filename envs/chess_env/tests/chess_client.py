"""A client of our chess server that is written for the public package.

``python chess_client.py URL`` prints the results. Run it in a virtual environment with the public
package 0.10.0.
"""

import asyncio
import json
import sys
from typing import Any

from pydantic import Field

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import Action, Observation, State


class ChessAction(Action):
    move: str


class ChessObservation(Observation):
    """The fields that the server sends; the public base class refuses unknown ones."""

    fen: str = ""
    legal_moves: list[str] = Field(default_factory=list)
    is_check: bool = False
    result: str | None = None


class ChessState(State):
    fen: str = ""
    current_player: str = "white"
    move_history: list[str] = Field(default_factory=list)


class ChessEnv(EnvClient[ChessAction, ChessObservation, ChessState]):
    """A client with the public package's three hooks, which accept any payload."""

    def _step_payload(self, action: ChessAction) -> dict[str, Any]:
        return {"move": action.move}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[ChessObservation]:
        done, reward = payload.get("done", False), payload.get("reward")
        observation = ChessObservation(**payload["observation"], done=done, reward=reward)
        return StepResult(observation=observation, reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> ChessState:
        return ChessState(**payload)


# The moves to play, first from the initial position, then from a given position.
MOVES = ["e2e5", "f2f3", "e7e5", "g2g4", "d8h4"]
BACK_RANK = "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1"


def shown(result: StepResult[ChessObservation]) -> dict[str, Any]:
    observation = result.observation.model_dump(mode="json", exclude={"done", "reward"})
    observation.pop("truncated", None)
    return {"observation": observation, "reward": result.reward, "done": result.done}


def in_sync(url: str) -> list[dict[str, Any]]:
    with ChessEnv(base_url=url).sync() as env:
        seen = [shown(env.reset(seed=1, episode_id="e"))]
        seen += [shown(env.step(ChessAction(move=move))) for move in MOVES]
        seen.append(env.state().model_dump(mode="json"))
        seen.append(shown(env.reset(fen=BACK_RANK)))
        return [*seen, shown(env.step(ChessAction(move="a1a8")))]


async def in_async(url: str) -> list[dict[str, Any]]:
    async with ChessEnv(base_url=url) as env:
        seen = [shown(await env.reset(seed=1, episode_id="e"))]
        seen += [shown(await env.step(ChessAction(move=move))) for move in MOVES]
        seen.append((await env.state()).model_dump(mode="json"))
        seen.append(shown(await env.reset(fen=BACK_RANK)))
        return [*seen, shown(await env.step(ChessAction(move="a1a8")))]


async def side_by_side(url: str) -> list[list[dict[str, Any]]]:
    return await asyncio.gather(*(in_async(url) for _ in range(4)))


if __name__ == "__main__":
    url = sys.argv[1]
    seen = {
        "sync": in_sync(url),
        "async": asyncio.run(in_async(url)),
        "side by side": asyncio.run(side_by_side(url)),
    }
    print(json.dumps(seen))  # noqa: T201
