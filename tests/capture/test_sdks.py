"""The real SDKs of OpenAI and Anthropic through the proxy, streamed and not, with tools."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest
from capture.conftest import Proxied, Start
from support.llm_server import Asked, Failure, Reply
from support.token_server import Dropped, prompt_of, written

from openenv.capture import export_session

pytestmark = pytest.mark.slow  # an SDK takes a while to import

SCHEMA = {"type": "object", "properties": {"at": {"type": "integer"}}}


def model(asked: Asked) -> Reply | str:
    """Looks once, and then says what it saw."""
    last = asked.messages[-1]
    return (
        f"saw {last['content']}" if last["role"] == "tool" else Reply("so", [("look", {"at": 1})])
    )


def one_sequence(proxied: Proxied) -> list[dict[str, Any]]:
    """The messages of a session whose calls are one conversation, all of it exact."""
    document = export_session(proxied.session, include_messages=True)
    (sequence,) = document["sequences"]
    last = document["turns"][-1]
    messages = [*last["request_messages"], last["response_message"]]
    assert sequence["input_ids"] == prompt_of(messages[:-1]) + written(messages[-1])
    assert sequence["n_turns"] == len(document["turns"])
    assert document["trainable"] and not document["failures"]
    assert not any(turn["rerendered"] for turn in document["turns"])
    return messages


@pytest.fixture
def openai_of() -> Any:
    return lambda proxied: openai.OpenAI(
        base_url=f"{proxied.server.url}/v1", api_key=proxied.key, max_retries=0
    )


@pytest.fixture
def anthropic_of() -> Any:
    return lambda proxied: anthropic.Anthropic(
        base_url=proxied.server.url, api_key=proxied.key, max_retries=0
    )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_chat_completions_with_a_tool(start: Start, openai_of: Any, stream: bool) -> None:
    proxied = start(model)
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    messages: list[Any] = [{"role": "system", "content": "be"}, {"role": "user", "content": "go"}]
    with openai_of(proxied) as client:
        for turn in range(2):
            if stream:
                asked = client.chat.completions.stream(model="m", messages=messages, tools=tools)
                with asked as events:
                    for _ in events:
                        pass
                    message = events.get_final_completion().choices[0].message
            else:
                asked = client.chat.completions.create(model="m", messages=messages, tools=tools)
                message = asked.choices[0].message
            if turn == 0:
                (call,) = message.tool_calls
                assert json.loads(call.function.arguments) == {"at": 1}
                messages.append(message.to_dict())
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "a cat"})
    assert message.content == "saw a cat"
    assert len(one_sequence(proxied)) == 5


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kept_by", ["agent", "proxy"])
def test_responses_with_a_tool(start: Start, openai_of: Any, stream: bool, kept_by: str) -> None:
    proxied = start(model)
    tools: Any = [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}]
    history: list[Any] = [{"role": "user", "content": "go"}]
    given, previous = history, None
    with openai_of(proxied) as client:
        for turn in range(2):
            options = {"input": given, "tools": tools, "instructions": "be"}
            if previous is not None and kept_by == "proxy":
                options["previous_response_id"] = previous
            if stream:
                with client.responses.stream(model="m", **options) as events:
                    kinds = [event.type for event in events]
                    response = events.get_final_response()
                assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
                assert "response.output_text.delta" in kinds
            else:
                response = client.responses.create(model="m", **options)
            if turn == 0:
                (call,) = [item for item in response.output if item.type == "function_call"]
                assert json.loads(call.arguments) == {"at": 1}
                result = {"type": "function_call_output", "call_id": call.call_id, "output": "cat"}
                history += [item.to_dict() for item in response.output]
                history.append(result)
                given = history if kept_by == "agent" else [result]
                previous = response.id
    assert (response.output_text, response.status) == ("saw cat", "completed")
    assert response.usage.output_tokens == len(written({"content": "saw cat"}))
    roles = [message["role"] for message in one_sequence(proxied)]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_messages_with_a_tool(start: Start, anthropic_of: Any, stream: bool) -> None:
    proxied = start(model)
    tools: Any = [{"name": "look", "input_schema": SCHEMA}]
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
    with anthropic_of(proxied) as client:
        for turn in range(2):
            options: Any = {"model": "m", "max_tokens": 99, "system": "be", "tools": tools}
            if stream:
                with client.messages.stream(messages=messages, **options) as events:
                    said = "".join(events.text_stream)
                    message = events.get_final_message()
                assert said == message.content[0].text
            else:
                message = client.messages.create(messages=messages, **options)
            if turn == 0:
                text, call = message.content
                assert (text.text, call.name, call.input) == ("so", "look", {"at": 1})
                assert message.stop_reason == "tool_use"
                result = {"type": "tool_result", "tool_use_id": call.id, "content": "cat"}
                messages += [
                    {
                        "role": "assistant",
                        "content": [block.to_dict() for block in message.content],
                    },
                    {"role": "user", "content": [result]},
                ]
        assert client.messages.count_tokens(model="m", messages=messages[:1]).input_tokens == len(
            prompt_of([{"role": "user", "content": "go"}])
        )
    assert (message.content[0].text, message.stop_reason) == ("saw cat", "end_turn")
    assert message.usage.output_tokens == len(written({"content": "saw cat"}))
    roles = [message["role"] for message in one_sequence(proxied)]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]


def test_a_cut_off_answer_says_so_in_every_api(
    start: Start, openai_of: Any, anthropic_of: Any
) -> None:
    proxied = start(Reply("half of", cut_off=True))
    with openai_of(proxied) as client, anthropic_of(proxied) as other:
        messages: Any = [{"role": "user", "content": "go"}]
        chat = client.chat.completions.create(model="m", messages=messages)
        assert chat.choices[0].finish_reason == "length"
        response = client.responses.create(model="m", input="go")
        assert (response.status, response.incomplete_details.reason) == (
            "incomplete",
            "max_output_tokens",
        )
        message = other.messages.create(model="m", max_tokens=9, messages=messages)
        assert message.stop_reason == "max_tokens"


def test_an_error_of_the_upstream_is_the_sdks_own_exception(
    start: Start, openai_of: Any, anthropic_of: Any
) -> None:
    proxied = start([Failure(429, "later")] * 3)
    messages: Any = [{"role": "user", "content": "go"}]
    with openai_of(proxied) as client, anthropic_of(proxied) as other:
        with pytest.raises(openai.RateLimitError, match="later"):
            client.chat.completions.create(model="m", messages=messages)
        with pytest.raises(openai.RateLimitError, match="later"):
            client.responses.create(model="m", input="go", stream=True)
        with pytest.raises(anthropic.RateLimitError, match="later"):
            other.messages.create(model="m", max_tokens=9, messages=messages)
    assert len(proxied.session.failures) == 3


def test_a_stream_that_breaks_off_is_the_sdks_own_exception(
    start: Start, openai_of: Any, anthropic_of: Any
) -> None:
    proxied = start(Dropped("a long answer"))
    messages: Any = [{"role": "user", "content": "go"}]
    with openai_of(proxied) as client, anthropic_of(proxied) as other:
        with pytest.raises(openai.APIError):
            for _ in client.chat.completions.create(model="m", messages=messages, stream=True):
                pass
        with pytest.raises(openai.APIError):
            for _ in client.responses.create(model="m", input="go", stream=True):
                pass
        with (
            pytest.raises(anthropic.APIStatusError),
            other.messages.stream(model="m", max_tokens=9, messages=messages) as events,
        ):
            for _ in events:
                pass
    assert [one.kind for one in proxied.session.failures] == ["broken"] * 3
    assert proxied.session.graph.nodes() == []


def test_what_no_chat_model_can_do_is_refused_in_words(
    start: Start, openai_of: Any, anthropic_of: Any
) -> None:
    proxied = start()
    with openai_of(proxied) as client, anthropic_of(proxied) as other:
        with pytest.raises(openai.BadRequestError, match="web_search"):
            client.responses.create(model="m", input="go", tools=[{"type": "web_search"}])
        with pytest.raises(anthropic.BadRequestError, match="runs on Anthropic's servers"):
            other.messages.create(
                model="m",
                max_tokens=9,
                messages=[{"role": "user", "content": "go"}],
                tools=[{"type": "web_search_20250305", "name": "web_search"}],
            )
    assert [one.kind for one in proxied.session.failures] == ["refused"] * 2
    assert proxied.upstream.asked == []
