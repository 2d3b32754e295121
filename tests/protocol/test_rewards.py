"""What is known of a reward, as each version of the protocol writes it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pydantic_core import from_json

from openenv import Observation, StepResult
from openenv.environment import scored
from openenv.execution.spec import normalise
from openenv.protocol.messages import Transition
from openenv.protocol.v0.codec import observation_payload
from openenv.protocol.v1.codec import codec_named
from openenv.reward import REWARD_INFO, Score

SCORE = Score(1.0, {"work": 0.75, "style": 0.25})
TOLD = {"components": {"work": 0.75, "style": 0.25}}


class Seen(Observation):
    text: str = ""


FORMS = {
    "noted in the metadata": scored(Seen(metadata={"k": 1}), SCORE),
    "given in the result": StepResult(Seen(metadata={"k": 1}), 1.0, reward_info=SCORE.as_info()),
}


@pytest.mark.parametrize("form", FORMS)
def test_version_0_carries_it_in_the_metadata(form: str) -> None:
    payload = from_json(observation_payload(normalise(FORMS[form], "step")))
    assert payload["reward"] == 1.0
    assert payload["metadata"] == {"k": 1, REWARD_INFO: TOLD}
    assert payload["observation"] == {"text": "", "metadata": payload["metadata"]}


@pytest.mark.parametrize("name", ["openenv.v1.msgpack", "openenv.v1.json"])
@pytest.mark.parametrize("form", FORMS)
def test_version_1_has_a_field_for_it(form: str, name: str) -> None:
    data = codec_named(name).encode_data(normalise(FORMS[form], "step"))
    decode: Any = msgspec.msgpack.decode if name.endswith("msgpack") else msgspec.json.decode
    payload = decode(data)
    assert payload[REWARD_INFO] == TOLD
    assert payload["metadata"] == {"k": 1}


def test_metadata_that_mean_something_else_stay_as_they_are() -> None:
    transition = normalise(Seen(metadata={REWARD_INFO: "a book"}), "step")
    assert transition.reward_info is None
    assert transition.metadata == {REWARD_INFO: "a book"}


def test_who_has_nothing_to_tell_writes_what_it_always_did() -> None:
    bare = Transition(Seen(text="a"), 0.5, True)
    assert observation_payload(bare) == (
        b'{"observation":{"metadata":{},"text":"a"},"reward":0.5,"done":true}'
    )
