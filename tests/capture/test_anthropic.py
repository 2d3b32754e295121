"""An upstream of Anthropic's API: calls are passed on as they are, and taken down as text.

What stands in for that API is another proxy of ours, which speaks it in front of a server of
OpenAI's form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from capture.conftest import Proxied, Start
from support.llm_server import Asked, Failure, Reply
from support.token_server import Dropped

from openenv.capture import CaptureServer, CaptureSession, export_session, to_training_trace

pytestmark = pytest.mark.slow  # an SDK takes a while to import


def model(asked: Asked) -> Any:
    if asked.last == "fail":
        return Failure(529, "overloaded")
    if asked.last == "drop":
        return Dropped("a long answer")
    if asked.messages[-1]["role"] == "tool":
        return "saw a cat"
    return Reply("so", [("look", {"at": 1})])


class Passing:
    """A client, the session of the proxy that passes its calls on, and what stands behind."""

    def __init__(
        self, client: anthropic.Anthropic, session: CaptureSession, behind: Proxied
    ) -> None:
        self.client = client
        self.session = session
        self.behind = behind


@pytest.fixture
def passing(start: Start) -> Iterator[Passing]:
    behind = start(model)
    options: dict[str, Any] = {"provider": "anthropic", "api_key": behind.key, "port": 0}
    with CaptureServer(llm_url=behind.server.url, model="claude", **options) as server:
        session = server.registry.create()
        with anthropic.Anthropic(
            base_url=server.url, api_key=session.session_id, max_retries=0
        ) as client:
            yield Passing(client, session, behind)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_messages_are_passed_on_and_taken_down(passing: Passing, stream: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "go"}]
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    options: Any = {"model": "any", "max_tokens": 99, "tools": tools}
    for turn in range(2):
        if stream:
            with passing.client.messages.stream(messages=messages, **options) as events:
                message = events.get_final_message()
        else:
            message = passing.client.messages.create(messages=messages, **options)
        if turn == 0:
            call = message.content[-1]
            assert call.type == "tool_use" and call.input == {"at": 1}
            content = [block.to_dict() for block in message.content]
            result = {"type": "tool_result", "tool_use_id": call.id, "content": "cat"}
            messages.append({"role": "assistant", "content": content})
            messages.append({"role": "user", "content": [result]})
    assert message.content[0].type == "text" and message.content[0].text == "saw a cat"
    document = export_session(passing.session, include_messages=True)
    first, second = document["turns"]
    assert second["parent_id"] == first["node_id"]
    assert first["response_message"]["tool_calls"][0]["function"]["name"] == "look"
    assert second["response_message"]["content"] == "saw a cat"
    assert (document["rollout_type"], document["trainable"]) == ("eval", False)
    with pytest.raises(ValueError, match="not captured for training"):
        to_training_trace(passing.session.graph, document)


def test_failures_are_passed_on_too(passing: Passing) -> None:
    with pytest.raises(anthropic.APIStatusError, match="overloaded"):
        passing.client.messages.create(
            model="any", max_tokens=9, messages=[{"role": "user", "content": "fail"}]
        )
    with (
        pytest.raises(anthropic.APIStatusError),
        passing.client.messages.stream(
            model="any", max_tokens=9, messages=[{"role": "user", "content": "drop"}]
        ) as events,
    ):
        events.get_final_message()
    assert [one.kind for one in passing.session.failures] == ["upstream", "broken"]
    assert passing.session.failures[0].status == 529
    assert passing.session.graph.nodes() == []


def test_other_apis_are_refused_by_such_an_upstream(passing: Passing) -> None:
    url = str(passing.client.base_url).rstrip("/")
    headers = {"authorization": f"Bearer {passing.session.session_id}"}
    body = {"messages": [{"role": "user", "content": "go"}]}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, trust_env=False)
    assert answer.status_code == 400
    assert "POST /v1/messages only" in answer.json()["error"]["message"]
    assert passing.behind.upstream.asked == []
