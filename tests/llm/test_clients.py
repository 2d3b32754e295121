"""Clients of language models, against a server that speaks the two APIs."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from support.llm_server import Failure, Late, LLMServer, Reply, llm_server, warm_up

from openenv._internal.packages import MissingPackage
from openenv.errors import NotSupported
from openenv.rewards import LLMJudge
from openenv.rewards.llm import (
    AnthropicClient,
    InvalidToolCall,
    LLMClient,
    LLMError,
    LLMResponse,
    LLMTimeout,
    LLMUnreachable,
    OpenAIClient,
    ToolCall,
    Usage,
    create_llm_client,
)

pytestmark = pytest.mark.anyio

Client = OpenAIClient | AnthropicClient
Make = Callable[..., Client]

ADD = {
    "name": "add",
    "description": "adds two numbers",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "add"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
            {"id": "2", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}},
        ],
    },
    {"role": "tool", "tool_call_id": "1", "content": "3"},
    {"role": "tool", "tool_call_id": "2", "content": "4"},
    {"role": "user", "content": "more"},
]


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    warm_up(OpenAIClient, AnthropicClient)


@pytest.fixture(params=[OpenAIClient, AnthropicClient], ids=["openai", "anthropic"])
def make(request: pytest.FixtureRequest) -> Make:
    kind: type[Client] = request.param

    def made(server: LLMServer, **settings: Any) -> Client:
        settings = {"api_key": "k", "max_retries": 0, "timeout_s": 10.0, **settings}
        return kind(server.url, None, "toy", **settings)

    return made


# ------------------------------------------------------------------ asking


async def test_an_answer_is_the_text_of_the_model(make: Make) -> None:
    with llm_server(lambda asked: asked.last.upper()) as server:
        async with make(server) as client:
            assert await client.complete("what now") == "WHAT NOW"


async def test_an_answer_tells_what_it_has_cost_and_why_it_ended(make: Make) -> None:
    with llm_server(Reply("one two three", cut_off=True)) as server:
        async with make(server) as client:
            answer = await client.complete_with_tools([{"role": "user", "content": "a b"}], [])
    assert answer == LLMResponse("one two three")
    assert answer.usage == Usage(2, 3) and answer.usage.total_tokens == 5
    assert answer.finish_reason in ("length", "max_tokens")


async def test_settings_go_with_every_request_and_those_of_a_call_come_first(make: Make) -> None:
    with llm_server() as server:
        async with make(server, temperature=0.25, max_tokens=9, system_prompt="sys") as client:
            await client.complete("a")
            await client.complete("b", temperature=None, max_tokens=3, stop="END", top_p=0.5)
    first, second = (dict(asked.body) for asked in server.asked)
    assert (first["temperature"], first["max_tokens"], first["model"]) == (0.25, 9, "toy")
    assert "temperature" not in second and (second["max_tokens"], second["top_p"]) == (3, 0.5)
    assert "END" in (second.get("stop"), *second.get("stop_sequences", ()))
    assert first.get("system", first["messages"][0]["content"]) == "sys"
    assert {asked.key for asked in server.asked} == {"k"}


async def test_a_conversation_has_its_own_system_prompt_or_that_of_the_client(make: Make) -> None:
    with llm_server() as server:
        async with make(server, system_prompt="of the client") as client:
            await client.complete_with_tools(CONVERSATION, [])
            await client.complete_with_tools(CONVERSATION[1:], [])
    own, of_client = (asked.body for asked in server.asked)
    assert "be brief" in str(own) and "of the client" not in str(own)
    assert "of the client" in str(of_client)


async def test_tools_are_offered_and_their_calls_read(make: Make) -> None:
    calls = [("add", {"a": 1}), ("add", {"a": 2})]
    with llm_server(Reply("let me see", calls=calls)) as server:
        async with make(server) as client:
            answer = await client.complete_with_tools(CONVERSATION[:2], [ADD, {"name": "stop"}])
    first, second = ToolCall("call_0_0", "add", {"a": 1}), ToolCall("call_0_1", "add", {"a": 2})
    assert answer == LLMResponse("let me see", [first, second])
    offered = [tool.get("function", tool) for tool in server.asked[0].body["tools"]]
    assert [tool["name"] for tool in offered] == ["add", "stop"]
    schemas = [tool.get("parameters", tool.get("input_schema")) for tool in offered]
    assert schemas == [ADD["inputSchema"], {"type": "object", "properties": {}}]


async def test_an_answer_goes_on_as_a_message_of_the_conversation(make: Make) -> None:
    with llm_server([Reply(None, calls=[("add", {"a": 1})]), "done"]) as server:
        async with make(server) as client:
            messages = CONVERSATION[:2]
            answer = await client.complete_with_tools(messages, [ADD])
            assert answer.content == ""
            result = {"role": "tool", "tool_call_id": answer.tool_calls[0].id, "content": "5"}
            messages = [*messages, answer.to_message_dict(), result]
            assert (await client.complete_with_tools(messages, [ADD])).content == "done"


async def test_openai_is_sent_a_conversation_as_it_is() -> None:
    with llm_server() as server:
        async with OpenAIClient(server.url, None, "toy") as client:
            await client.complete_with_tools(CONVERSATION, [])
    assert server.asked[0].messages == CONVERSATION
    assert "tools" not in server.asked[0].body and server.asked[0].key == "not-needed"


async def test_anthropic_is_sent_a_conversation_in_its_own_form() -> None:
    with llm_server() as server:
        async with AnthropicClient(server.url, None, "toy") as client:
            spoken = {**CONVERSATION[2], "content": "so"}
            await client.complete_with_tools([*CONVERSATION[:2], spoken, *CONVERSATION[3:]], [])
    assert server.asked[0].body["system"] == "be brief"
    uses = [
        {"type": "tool_use", "id": number, "name": "add", "input": {"a": int(number)}}
        for number in "12"
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "1", "content": "3"},
        {"type": "tool_result", "tool_use_id": "2", "content": "4"},
    ]
    assert server.asked[0].messages == [
        {"role": "user", "content": "add"},
        {"role": "assistant", "content": [{"type": "text", "text": "so"}, *uses]},
        {"role": "user", "content": results},
        {"role": "user", "content": "more"},
    ]


async def test_what_tools_answer_later_is_a_message_of_its_own() -> None:
    twice = [*CONVERSATION[1:5], {"role": "assistant", "content": "hm"}, *CONVERSATION[3:4]]
    with llm_server() as server:
        async with AnthropicClient(server.url, None, "toy") as client:
            await client.complete_with_tools(twice, [])
    counts = [len(one["content"]) for one in server.asked[0].messages if one["role"] == "user"]
    assert counts == [len("add"), 2, 1]


async def test_a_seed_goes_to_openai_and_is_refused_for_anthropic() -> None:
    with llm_server() as server:
        async with OpenAIClient(server.url, None, "toy") as client:
            await client.complete("a", seed=7)
        assert server.asked[0].body["seed"] == 7
        with pytest.raises(NotSupported) as refused:
            await AnthropicClient(server.url, None, "toy").complete("a", seed=7)
    assert refused.value.feature == "seed" and len(server.asked) == 1


async def test_a_reasoning_model_is_given_its_own_limit_and_no_temperature() -> None:
    with llm_server() as server:
        async with OpenAIClient(
            server.url, None, "o3", use_max_completion_tokens=True, max_tokens=50
        ) as client:
            await client.complete("a")
            await client.complete("b", max_tokens=7, temperature=1)
    first, second = (dict(asked.body) for asked in server.asked)
    assert first["max_completion_tokens"] == 50 and second["max_completion_tokens"] == 7
    assert "temperature" not in first and second["temperature"] == 1
    assert "max_tokens" not in first and "max_tokens" not in second


def test_a_client_works_in_one_loop_after_another(make: Make) -> None:
    async def once(client: Client) -> str:
        async with client:
            return await client.complete("a")

    with llm_server(["first", "second"]) as server:
        client = make(server)
        assert asyncio.run(once(client)) == "first"
        assert asyncio.run(once(client)) == "second"


# ------------------------------------------------------------------ failing


async def test_an_answer_with_an_error_says_which_and_from_where(make: Make) -> None:
    with llm_server(Failure(500, "on fire")) as server:
        async with make(server) as client:
            with pytest.raises(LLMError) as failed:
                await client.complete("a")
    assert failed.value.status == 500
    assert all(word in str(failed.value) for word in ("on fire", server.url, "toy"))
    assert len(server.asked) == 1
    again = pickle.loads(pickle.dumps(failed.value))
    assert (again.status, str(again)) == (500, str(failed.value))


async def test_a_server_that_has_too_much_to_do_is_asked_again(make: Make) -> None:
    with llm_server([Failure(429, retry_after_s=0.01), "at last"]) as server:
        async with make(server, max_retries=1) as client:
            assert await client.complete("a") == "at last"
    assert len(server.asked) == 2


async def test_a_server_that_does_not_answer_in_time_is_given_up(make: Make) -> None:
    with llm_server(Late()) as server:
        async with make(server) as client:
            with pytest.raises(LLMTimeout) as failed:
                await client.complete("a", timeout_s=0.05)
    assert isinstance(failed.value, TimeoutError)
    assert failed.value.status is None and "imed out" in str(failed.value)


async def test_a_wrong_key_is_told(make: Make) -> None:
    with llm_server("ok", key="right") as server:
        async with make(server, api_key="wrong") as client:
            with pytest.raises(LLMError) as failed:
                await client.complete("a")
            assert failed.value.status == 401 and "wrong" not in str(failed.value)
        async with make(server, api_key="right") as client:
            assert await client.complete("a") == "ok"


async def test_where_nobody_listens_is_told(make: Make) -> None:
    with llm_server() as server:
        client = make(server)
    with pytest.raises(LLMUnreachable) as failed:
        await client.complete("a")
    assert isinstance(failed.value, ConnectionError)
    assert failed.value.status is None and server.url in str(failed.value)
    again = pickle.loads(pickle.dumps(failed.value))
    assert (again.status, str(again)) == (None, str(failed.value))


async def test_a_message_without_content_is_not_sent_to_an_api_that_refuses_it() -> None:
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]
    with llm_server("ok") as server:
        async with AnthropicClient(server.url, None, "toy") as client:
            await client.complete_with_tools([*said, {"role": "user", "content": "b"}], [])
    assert [message["content"] for message in server.asked[0].messages] == ["a", "b"]


@pytest.mark.parametrize("written", ["{", "[1]", "3"])
async def test_a_call_without_arguments_is_an_error_of_its_own(written: str) -> None:
    with llm_server(Reply("", calls=[("add", written)])) as server:
        async with OpenAIClient(server.url, None, "toy") as client:
            with pytest.raises(InvalidToolCall) as failed:
                await client.complete_with_tools(CONVERSATION[:2], [ADD])
    assert isinstance(failed.value, ValueError | LLMError)
    assert (failed.value.name, failed.value.arguments) == ("add", written)
    assert pickle.loads(pickle.dumps(failed.value)).arguments == written


async def test_a_tool_without_a_name_is_refused(make: Make) -> None:
    with llm_server() as server, pytest.raises(ValueError, match="without a name"):
        await make(server).complete_with_tools(CONVERSATION[:2], [{"description": "x"}])
    assert server.asked == []


async def test_a_client_of_ones_own_need_not_know_tools() -> None:
    class Parrot(LLMClient):
        async def complete(self, prompt: str, **kwargs: Any) -> str:
            return prompt

    async with Parrot("http://localhost", 1) as parrot:
        assert await parrot.complete("a") == "a"
        with pytest.raises(NotImplementedError, match="Parrot"):
            await parrot.complete_with_tools([], [])


@pytest.mark.parametrize(
    ("endpoint", "port", "base_url"),
    [
        ("mock", 0, "mock:0"),
        ("", 0, ":0"),
        ("local://model", None, "local://model"),
        ("http://h/", 8, "http://h:8"),
    ],
)
def test_a_client_that_asks_no_server_needs_no_url(
    endpoint: str, port: int | None, base_url: str
) -> None:
    class Local(LLMClient):
        async def complete(self, prompt: str, **kwargs: Any) -> str:
            return "0.5"

    client = Local(endpoint, port)
    assert (client.endpoint, client.port, client.base_url) == (endpoint, port, base_url)
    assert asyncio.run(LLMJudge("Rate {action}", client)("a", "b")) == 0.5


# ------------------------------------------------------------------ making one


@pytest.mark.parametrize(
    ("endpoint", "port", "base_url"),
    [
        ("http://h", 8, "http://h:8"),
        ("http://h:8", 8, "http://h:8"),
        ("http://h/v2/", 8, "http://h:8/v2"),
        ("https://h/v1", None, "https://h/v1"),
        ("http://[::1]", 9, "http://[::1]:9"),
        ("http://[::1]:9/", None, "http://[::1]:9"),
        ("HTTP://H", 8, "http://H:8"),
        ("https://h", 443, "https://h:443"),
    ],
)
def test_a_url_and_a_port_make_one(endpoint: str, port: int | None, base_url: str) -> None:
    assert OpenAIClient(endpoint, port, "m").base_url == base_url


@pytest.mark.parametrize(
    ("endpoint", "port", "named"),
    [
        ("http://h:9", 8, "9"),
        ("http://h", 0, "65535"),
        ("http://h", 70000, "65535"),
        ("http://h", "8", "65535"),
        ("http://h:99999", None, "h:99999"),
        ("http://h:0", None, "port"),
        ("http://h:", 8, "port"),
        ("h", 8, "http"),
        ("ftp://h", 8, "http"),
        ("http://", 8, "host"),
        ("http://h?x=1", 8, "query"),
        ("http://h#x", 8, "fragment"),
    ],
)
def test_what_is_no_url_is_refused(endpoint: str, port: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        OpenAIClient(endpoint, port, "m")


def test_a_secret_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="api_key") as refused:
        AnthropicClient("https://me:se@cret@h/v1", None, "m")
    assert "cret" not in str(refused.value) and "@h/v1" in str(refused.value)


def test_v1_is_added_where_a_url_has_no_path() -> None:
    for endpoint, wanted in [("http://h:1", "http://h:1/v1/"), ("http://h:1/a", "http://h:1/a/")]:
        assert str(OpenAIClient(endpoint, None, "m")._connect().base_url) == wanted


@pytest.mark.parametrize(
    ("model", "is_reasoning"),
    [
        ("gpt-4o", False),
        ("gpt-5-mini", True),
        ("o1-preview", True),
        ("o3", True),
        ("o4-mini", True),
    ],
)
def test_models_of_openai_are_told_apart(model: str, is_reasoning: bool) -> None:
    client = create_llm_client("openai", model, "k")
    assert isinstance(client, OpenAIClient)
    assert client.use_max_completion_tokens is is_reasoning
    assert (client.base_url, client.max_tokens) == ("https://api.openai.com:443", 4096)


def test_a_provider_is_known_by_its_name() -> None:
    client = create_llm_client("Anthropic", "m", "k", system_prompt="s", temperature=0.5)
    assert isinstance(client, AnthropicClient)
    assert (client.base_url, client.port) == ("https://api.anthropic.com:443", 443)
    assert (client.system_prompt, client.temperature) == ("s", 0.5)
    with pytest.raises(ValueError, match="did you mean 'anthropic'"):
        create_llm_client("antropic", "m", "k")


@pytest.mark.parametrize("kind", [OpenAIClient, AnthropicClient])
def test_a_missing_package_is_told_with_its_command(
    kind: type[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, kind.__name__.removesuffix("Client").lower(), None)
    with pytest.raises(MissingPackage, match=r"openenv\[llm\]"):
        kind("http://h", 1, "m")


def test_importing_the_clients_imports_no_sdk() -> None:
    code = "import sys, openenv.rewards.llm\n"
    code += "print({'openai', 'anthropic', 'httpx'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "set()\n"
