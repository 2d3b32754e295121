"""What agents are shown of observations: text, and pictures where they are taken."""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any

import numpy as np
import pytest
from rollouts.test_tokens import Letters, playing, saying, start
from support.llm_server import Reply, llm_server

from openenv import Action, Environment, Observation, State
from openenv.arrays import Array, Blob
from openenv.errors import NotSupported
from openenv.reward import RewardSpec
from openenv.rollouts import policy_named, rollout
from openenv.rollouts.episode_sessions import EpisodeSessions
from openenv.rollouts.failures import RolloutsFailed
from openenv.rollouts.policies.views import look_at, view
from openenv.rollouts.tokens import Chat
from openenv.tasks import Task
from openenv.tools.results import encode_png

PIXELS = np.arange(16 * 12 * 3, dtype=np.uint8).reshape(16, 12, 3)
PNG = encode_png(PIXELS)


class Move(Action):
    to: str


class Screen(Observation):
    frame: Annotated[np.ndarray, Array("uint8", (16, 12, 3))]
    shot: Annotated[bytes, Blob("image/png")] = b""
    text: str = ""


class Camera(Environment[Move, Screen, State]):
    """Shows a frame, and a screenshot."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    REWARD = RewardSpec("terminal", (0.0, 1.0))

    def reset(self, seed: int | None = None) -> Screen:  # type: ignore[override]
        return Screen(frame=PIXELS, shot=PNG or b"", text="You are here.")

    def step(self, action: Move) -> Screen:  # type: ignore[override]
        return Screen(frame=PIXELS, text="There.", done=True, reward=1.0)

    @property
    def state(self) -> State:
        return State()


TASK = Task(id="t", prompt="Look.")
ENCODED = base64.b64encode(PNG or b"").decode()
BLOCK = {"type": "image", "data": ENCODED, "mimeType": "image/png"}


@pytest.mark.parametrize("picture", [PIXELS, PNG, ENCODED], ids=["pixels", "bytes", "base64"])
def test_a_picture_is_one_in_whichever_form_a_client_has_it(picture: Any) -> None:
    seen = look_at({"frame": picture, "text": "here", "done": False})
    assert json.loads(seen.text) == {"frame": "[picture 1]", "text": "here"}
    assert seen.pictures == (BLOCK,)
    with pytest.raises(NotSupported, match=r"shows=\[...\], without the picture"):
        view({"frame": picture})
    assert view({"frame": picture, "text": "here"}, None, ["text"]) == "here"


def test_pictures_of_a_tools_result_are_seen() -> None:
    content = [{"type": "text", "text": "Here."}, {**BLOCK, "annotations": None}]
    result = {"content": content, "is_error": False}
    seen = look_at({"tool_name": "look", "result": result, "error": None})
    assert (seen.text, seen.pictures) == ("Here.\n[picture 1]", (BLOCK,))


def test_numbers_of_an_array_are_all_shown() -> None:
    numbers = np.arange(5000) / 2
    assert json.loads(view({"numbers": numbers, "text": "a"}))["numbers"] == numbers.tolist()


def test_a_text_that_only_begins_like_a_picture_is_a_text() -> None:
    for text in ("/9j/", "iVBORw0KGgo" + "!" * 100):
        assert view({"text": text}) == text


@pytest.mark.anyio
async def test_seats_that_show_pictures_pass_them_on() -> None:
    sessions = await EpisodeSessions.of(Camera, shows_pictures=True)
    try:
        session = await sessions.take()
        first = session.look_at(await session.reset())
        assert first.pictures == (BLOCK, BLOCK)
        answer = await session.reply("north")
        assert answer.pictures == (BLOCK,)
    finally:
        await sessions.aclose()


def test_a_trainer_that_is_told_in_text_is_refused_at_once() -> None:
    with playing(Camera) as player:
        chat = Chat(Letters(), player.sessions.interface)
        with pytest.raises(NotSupported, match="shows a picture"):
            player.play(chat, [start()], saying("north\x03"))
    with playing(Camera, shows=["text"]) as player:
        chat = Chat(Letters(), player.sessions.interface)
        (found,) = player.play(chat, [start()], saying("north\x03"))
        assert found.score.value == 1.0


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_model_behind_an_api_sees_pictures(kind: str) -> None:
    with llm_server(Reply("", calls=[("move", {"to": "north"})])) as server:
        policy = policy_named(f"{kind}:toy", base_url=server.url, api_key="k")
        (found,) = rollout(Camera, policy, [TASK], concurrency=1).rollouts
        assert found.reward == 1.0
        text, first, second = server.asked[0].messages[-1]["content"]
        assert text["type"] == "text"
        assert first == second
        if kind == "openai":
            assert first["image_url"] == {"url": f"data:image/png;base64,{ENCODED}"}
        else:
            source = {"type": "base64", "media_type": "image/png", "data": ENCODED}
            assert first == {"type": "image", "source": source}


def test_a_policy_of_a_model_that_does_not_see_is_refused_pictures() -> None:
    with llm_server(Reply("", calls=[("move", {"to": "north"})])) as server:
        policy = policy_named("openai:toy", base_url=server.url, api_key="k", sees=False)
        with pytest.raises(RolloutsFailed, match="shows a picture"):
            rollout(Camera, policy, [TASK], concurrency=1)
