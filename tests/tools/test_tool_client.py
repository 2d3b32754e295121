"""`MCPToolClient`: tools and steps in one session, by every face; and what goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import pickle
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

import pytest
from support.environments import Counter
from support.relay import Relay
from support.servers import serving

from openenv import (
    ConnectError,
    GenericEnvClient,
    NotSupported,
    ResponseTimeout,
    ServerError,
    SessionLost,
    State,
    ToolFailed,
    create_app,
)
from openenv.client import GenericMCPObservation, MCPToolClient
from openenv.environment import Environment
from openenv.errors import ProtocolError
from openenv.execution.limits import Limits
from openenv.tools import (
    CallToolAction,
    CallToolObservation,
    Image,
    ListToolsAction,
    ListToolsObservation,
    MCPEnvironment,
    Tool,
    tool,
)
from openenv.types import Action, Observation

Serve = Callable[[Any], str]


class Said(Observation):
    words: list[str] = []  # noqa: RUF012 - Pydantic copies it


class Say(Action):
    word: str


class Desk(MCPEnvironment[Say | CallToolAction | ListToolsAction, Said]):
    """An environment of tools that also has an action of its own."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    stamped: ClassVar[list[str]] = []

    def __init__(self) -> None:
        super().__init__()
        self.papers = 0

    @tool
    def stamp(self, name: str) -> int:
        """Stamp a paper.

        Args:
            name: Whose it is.
        """
        self.papers += 1
        self.stamped.append(name)
        return self.papers

    @tool
    async def wait(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        self.papers += 1
        return f"after {self.papers}"

    @tool
    def tear(self) -> str:
        raise ValueError("it is made of stone")

    @tool
    def photograph(self) -> Image:
        return Image(b"\x89PNG\r\n\x1a\n")

    @tool
    def describe(self):  # type: ignore[no-untyped-def]
        return {"papers": self.papers}

    @tool
    def sigh(self) -> None:
        """Say nothing."""

    def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Said:
        return Said(words=[action.word], reward=1.0)


class DeskEnv(MCPToolClient[Say | CallToolAction | ListToolsAction, Said]):
    pass


@pytest.fixture
def desk(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(Desk, "stamped", [])
    return serve(create_app(Desk))


VERSIONS = pytest.mark.parametrize("version", ["0", "1"])


@pytest.fixture(autouse=True)
def as_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "version" in request.fixturenames:
        monkeypatch.setenv("OPENENV_PROTOCOL", request.getfixturevalue("version"))


# ------------------------------------------------------------------ calls


@VERSIONS
def test_tools_are_listed_and_called_in_the_session_of_the_steps(desk: str, version: str) -> None:
    with DeskEnv(base_url=desk) as client:
        env = client.sync()
        env.reset(episode_id="e")
        names = ["stamp", "wait", "tear", "photograph", "describe", "sigh"]
        assert [one.name for one in env.list_tools()] == names
        stamp = env.get_tool("stamp")
        assert stamp is not None
        assert stamp.description == "Stamp a paper."
        assert stamp.input_schema["properties"]["name"]["description"] == "Whose it is."
        assert env.call_tool("stamp", name="a") == 1
        stepped = env.step(CallToolAction(tool_name="stamp", arguments={"name": "b"}))
        assert stepped.observation.result["data"] == 2
        assert env.call_tool(name="describe") == {"papers": 2}
        assert env.has_tool("stamp") is True
        assert env.has_tool("nothing") is False
        assert env.get_tool("nothing") is None
        assert client._session.version == int(version)


@pytest.mark.parametrize("is_step", [True, False])
def test_an_episode_of_tools_is_scored_where_all_of_it_were_steps(is_step: bool) -> None:
    def scorer(trajectory: Any) -> float:
        return float(len(trajectory))

    class Last(Desk):
        def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Said:
            return Said(words=[action.word], done=True)

    with DeskEnv.local(Last, trajectory_scorer=scorer).sync() as env:
        env.reset()
        if is_step:
            env.step(CallToolAction(tool_name="stamp", arguments={"name": "a"}))
        else:
            env.call_tool("stamp", name="a")
        last = env.step(Say(word="enough"))
        assert last.done and last.reward == (2.0 if is_step else None)
        assert (last.unscored is None) is is_step


def test_what_a_tool_gives_is_its_value_or_else_its_text_or_else_its_content(desk: str) -> None:
    with MCPToolClient(base_url=desk).sync() as env:
        assert env.call_tool("stamp", name="a") == 1
        assert env.call_tool("sigh") is None
        assert env.call_tool("describe") == {"papers": 1}
        (picture,) = env.call_tool("photograph")
        assert (picture["type"], picture["mimeType"]) == ("image", "image/png")


def test_observations_are_read_by_what_they_are(desk: str) -> None:
    call = CallToolAction(tool_name="stamp", arguments={"name": "a"})
    with DeskEnv(base_url=desk) as typed, MCPToolClient(base_url=desk) as untyped:
        assert type(typed.step(ListToolsAction()).observation) is ListToolsObservation
        assert type(typed.step(call).observation) is CallToolObservation
        assert typed.step(Say(word="hi")).observation == Said(words=["hi"], reward=1.0)
        observation: Any = untyped.step({"word": "hi"}).observation
        assert (observation.words, observation.reward) == (["hi"], 1.0)
        assert type(observation) is GenericMCPObservation


def test_an_observation_model_may_have_fields_called_as_those_of_tools() -> None:
    class Shown(Observation):
        tools: list[str] = []  # noqa: RUF012 - Pydantic copies it

    class ShownEnv(MCPToolClient[Any, Shown]):
        pass

    payload = {"observation": {"tools": ["hammer"]}, "reward": 1.0, "done": True}
    result = ShownEnv(base_url="http://localhost:1")._parse_result(payload)
    assert result.observation == Shown(tools=["hammer"], reward=1.0, done=True)


def test_a_list_of_tools_is_asked_for_once(desk: str) -> None:
    with MCPToolClient(base_url=desk) as env:
        first = env.list_tools()
        assert env.list_tools() is first
        again = env.list_tools(use_cache=False)
        assert again is not first and again == first


@pytest.mark.anyio
async def test_on_an_event_loop_every_call_is_awaited(desk: str) -> None:
    async with DeskEnv(base_url=desk) as env:
        listed, stamped = await asyncio.gather(env.list_tools(), env.call_tool("stamp", name="a"))
        assert len(listed) == 6 and stamped == 1
        assert await env.has_tool("stamp") and not await env.has_tool("nothing")
        assert (await asyncio.create_task(env.get_tool("tear"))) is not None
        with pytest.raises(ToolFailed):
            await env.call_tool("tear")


@pytest.mark.anyio
async def test_what_is_not_awaited_is_waited_for_where_it_is_read(desk: str) -> None:
    env = DeskEnv(base_url=desk)
    assert not env.has_tool("nothing"), "and not the truth of an answer on its way"
    assert "stamp" in [one.name for one in env.list_tools()]
    assert env.list_tools()[0].name == "stamp"
    assert len(env.list_tools()) == 6
    await env.close()
    async with DeskEnv(base_url=desk) as env:
        pending = env.has_tool("nothing")
        with pytest.raises(RuntimeError, match="await it"):
            bool(pending)
        assert await pending is False


def test_a_bare_client_calls_tools(desk: str) -> None:
    env = DeskEnv(base_url=desk)
    assert env.call_tool("stamp", name="a") == 1
    env.close()


def test_a_tool_is_called_in_this_process() -> None:
    with DeskEnv.local(Desk) as env:
        assert env.call_tool("stamp", name="a") == 1
        assert len(env.list_tools()) == 6


def test_a_name_is_needed() -> None:
    env = MCPToolClient(base_url="http://localhost:1")
    for wrong in ({}, {"name": 5}):
        with pytest.raises(TypeError, match="the name of a tool"):
            env.call_tool(**wrong)


# ------------------------------------------------------------------ modes


ClientT = TypeVar("ClientT", bound=MCPToolClient[Any, Any, Any])


def by_steps(client: ClientT) -> ClientT:
    client.use_production_mode = False
    return client


@pytest.mark.parametrize("mode", [None, "production", "Production"])
def test_a_call_is_no_step_in_production(desk: str, mode: str | None) -> None:
    with MCPToolClient(base_url=desk, mode=mode).sync() as env:
        assert env.use_production_mode is True
        env.reset(episode_id="e")
        env.call_tool("stamp", name="a")
        assert env.step({"word": "hi"}).reward == 1.0


def test_a_call_is_a_step_in_simulation(serve: Serve) -> None:
    class Counting(Desk):
        steps: ClassVar[int] = 0

        async def step_async(self, action: Any, *args: Any, **kwargs: Any) -> Any:
            Counting.steps += 1
            return await super().step_async(action, *args, **kwargs)

    with MCPToolClient(base_url=serve(create_app(Counting))).sync() as env:
        env.call_tool("stamp", name="a")
        assert Counting.steps == 0
    in_steps = by_steps(MCPToolClient(base_url=serve(create_app(Counting))))
    with in_steps.sync() as env:
        assert env.use_production_mode is False
        assert env.call_tool("stamp", name="a") == 1
        assert env.has_tool("stamp")
        assert Counting.steps == 2
        with pytest.raises(ToolFailed, match="it is made of stone") as failed:
            env.call_tool("tear")
        assert failed.value.error_type == "execution_error"


def test_another_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown mode 'other'"):
        MCPToolClient(base_url="http://localhost:1", mode="other")
    with pytest.raises(ValueError, match="use_production_mode = False"):
        MCPToolClient(base_url="http://localhost:1", mode="Simulation")


def test_a_mode_that_a_setting_says_wrongly_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_CLIENT_MODE", "training")
    wrong = "unknown mode 'training' in OPENENV_CLIENT_MODE; expected 'simulation' or 'production'"
    with pytest.raises(ValueError, match=wrong):
        GenericEnvClient(base_url="http://localhost:1")
    monkeypatch.setenv("OPENENV_MODE", "training")
    with pytest.raises(ValueError, match="in OPENENV_MODE;"):
        create_app(Desk)


def test_the_settings_mode_of_other_clients_is_not_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_CLIENT_MODE", "simulation")
    assert MCPToolClient(base_url="http://localhost:1").use_production_mode


def test_a_server_in_production_has_tools_and_nothing_else(serve: Serve) -> None:
    with MCPToolClient(base_url=serve(create_app(Desk, mode="production"))).sync() as env:
        assert env.call_tool("stamp", name="a") == 1
        with pytest.raises(NotSupported, match="production mode"):
            env.reset()
        assert env.call_tool("stamp", name="a") == 2, "in the same session"


def test_a_tool_called_directly_ends_a_journal(desk: str) -> None:
    with MCPToolClient(base_url=desk, journal=True).sync() as env:
        env.reset(seed=1)
        env.snapshot(replay=True)
        env.call_tool("stamp", name="a")
        with pytest.raises(NotSupported, match="'stamp' was called, which is no step"):
            env.snapshot(replay=True)


# ------------------------------------------------------------------ errors


@VERSIONS
def test_a_tools_words_are_the_text_of_the_error(desk: str, version: str) -> None:
    with MCPToolClient(base_url=desk).sync() as env:
        for name, words in (
            ("tear", "ValueError: it is made of stone"),
            ("nothing", "Unknown tool: 'nothing'"),
            ("stamp", "stamp: name: Field required"),
        ):
            with pytest.raises(RuntimeError) as failed:
                env.call_tool(name)
            assert isinstance(failed.value, ToolFailed)
            assert (str(failed.value), failed.value.tool_name) == (words, name)
        assert env.call_tool("stamp", name="a") == 1, "the session goes on"


def test_an_environment_without_tools_is_no_empty_list(serve: Serve) -> None:
    with MCPToolClient(base_url=serve(create_app(Counter))).sync() as env:
        for ask in (env.list_tools, lambda: env.has_tool("count"), lambda: env.call_tool("count")):
            with pytest.raises(NotSupported, match="does not support MCP: it has actions") as why:
                ask()
            assert why.value.feature == "tools" and isinstance(why.value, RuntimeError)


def test_a_server_that_is_not_there_is_no_empty_list() -> None:
    with pytest.raises(ConnectError):
        MCPToolClient(base_url="http://127.0.0.1:1").list_tools()


class Steps(Environment[CallToolAction | ListToolsAction, Observation, State]):
    """Answers calls of tools itself, by steps."""

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        return Observation()

    def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        if isinstance(action, ListToolsAction):
            return ListToolsObservation(tools=[Tool(name="a", description="", input_schema={})])
        if action.tool_name == "odd":
            return Observation()
        result = action.arguments.get("result")
        return CallToolObservation(tool_name=action.tool_name, result=result, reward=1.0)

    @property
    def state(self) -> State:
        return State()


@pytest.mark.parametrize("direct", [True, False])
def test_an_environment_may_answer_calls_by_its_steps(serve: Serve, direct: bool) -> None:
    client = MCPToolClient(base_url=serve(create_app(Steps)))
    client.use_production_mode = direct
    with client.sync() as env:
        assert [one.name for one in env.list_tools()] == ["a"]
        assert env.call_tool("a", result=[1, 2]) == [1, 2]
        assert env.call_tool("a", result={"content": "mine"}) == {"content": "mine"}


class Answered(Observation):
    tool_name: str = ""
    result: Any = None
    error: Any = None
    tools: list[dict[str, Any]] = []  # noqa: RUF012 - Pydantic copies it


class AnsweredEnv(MCPToolClient[Any, Answered]):
    pass


def test_a_client_may_read_calls_by_a_model_of_its_own(serve: Serve) -> None:
    with by_steps(AnsweredEnv(base_url=serve(create_app(Steps)))).sync() as env:
        assert env.call_tool("a", result=1) == Answered(tool_name="a", result=1, reward=1.0)
        assert env.list_tools() == [Tool(name="a", description="", input_schema={})]


def test_a_list_of_tools_that_is_none_is_no_empty_list(serve: Serve) -> None:
    class Listless(Steps):
        def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
            return Observation()

    url = serve(create_app(Listless))
    in_steps = by_steps(MCPToolClient(base_url=url)).sync()
    with in_steps as env, pytest.raises(ProtocolError, match="a step with a ListToolsAction gave"):
        env.list_tools()
    with MCPToolClient(base_url=url).sync() as env, pytest.raises(ServerError):
        env.list_tools()


@pytest.fixture
def relay(monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """To a server that keeps nothing for a client to come back to."""
    monkeypatch.setattr(Desk, "stamped", [])
    with serving(create_app(Desk, limits=Limits(resume_grace_s=0))) as url:
        relay = Relay(url)
        yield relay
        relay.close()


@VERSIONS
def test_a_lost_session_is_told_until_another_is_begun(relay: Relay, version: str) -> None:
    env = MCPToolClient(base_url=relay.url)
    assert env.call_tool("stamp", name="a") == 1
    relay.cut()
    for _ in range(2):
        with pytest.raises(SessionLost, match=r"connect\(\) for another session"):
            env.call_tool("stamp", name="a")
    with pytest.raises(SessionLost):
        env.list_tools()
    assert Desk.stamped == ["a"], "nothing was called in another session"
    env.connect()
    assert env.call_tool("stamp", name="b") == 1
    relay.cut()
    env.reset()
    assert env.call_tool("stamp", name="c") == 1
    env.close()


def test_a_client_may_be_entered_again(desk: str) -> None:
    env = MCPToolClient(base_url=desk)
    for _ in range(2):
        with env:
            assert env.call_tool("stamp", name="a") == 1

    async def twice() -> None:
        for _ in range(2):
            async with env:
                assert await env.call_tool("stamp", name="a") == 1

    asyncio.run(twice())


@pytest.mark.slow
def test_a_call_that_is_made_again_is_not_made_twice(desk: str) -> None:
    with MCPToolClient(base_url=desk, message_timeout_s=0.2).sync() as env:
        with pytest.raises(ResponseTimeout):
            env.call_tool("wait", seconds=0.6)
        for _ in range(20):
            with contextlib.suppress(ResponseTimeout):
                assert env.call_tool("wait", seconds=0.6) == "after 1"
                return
    pytest.fail("no answer came")


@pytest.mark.slow
@VERSIONS
def test_a_call_that_was_late_is_not_the_answer_to_the_next(desk: str, version: str) -> None:
    with MCPToolClient(base_url=desk, message_timeout_s=0.5).sync() as env:
        with pytest.raises(ResponseTimeout, match="no answer to a call of a tool"):
            env.call_tool("wait", seconds=0.7)
        with pytest.raises(SessionLost, match="a call of a tool was not answered"):
            env.step({"word": "hi"})
        assert env.call_tool("stamp", name="a") == 2
        env.reset()
        assert env.step({"word": "hi"}).reward == 1.0


# ------------------------------------------------------------------ joining


def post(url: str, method: str, **params: Any) -> Any:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/mcp", body.encode(), headers)
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.loads(answer.read())["result"]


def test_a_session_that_was_made_over_http_is_joined(desk: str) -> None:
    session_id = post(desk, "openenv/session/create")["session_id"]
    called = {"name": "stamp", "arguments": {"name": "a"}}
    assert post(desk, "tools/call", session_id=session_id, **called)["data"] == 1
    for expected in (2, 3):
        with MCPToolClient(base_url=desk, session_id=session_id).sync() as env:
            assert env.call_tool("stamp", name="b") == expected
    assert post(desk, "tools/call", session_id=session_id, **called)["data"] == 4
    assert post(desk, "openenv/session/close", session_id=session_id)["closed"] is True


def test_a_further_session_is_another_one(desk: str) -> None:
    with by_steps(DeskEnv(base_url=desk)).sync() as env:
        assert env.call_tool("stamp", name="a") == 1
        other = env.new_session()
        assert other.use_production_mode is False
        assert other.call_tool("stamp", name="a") == 1
        assert other.call_tool("stamp", name="a") == 2
        assert env.call_tool("stamp", name="a") == 2


# ------------------------------------------------------------------ the environment


class Both(MCPEnvironment):
    """Writes `step` and `step_async`, and both call the base."""

    def __init__(self) -> None:
        super().__init__()
        self.counted = State()

    @tool
    def hello(self) -> str:
        return "hello"

    def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        self.counted.step_count += 1
        return super().step(action, timeout_s=timeout_s, **kwargs)

    async def step_async(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        self.counted.step_count += 1
        return await super().step_async(action, timeout_s=timeout_s, **kwargs)

    @property
    def state(self) -> State:
        return self.counted


def test_a_step_is_taken_once_where_both_forms_are_written(serve: Serve) -> None:
    with MCPToolClient(base_url=serve(create_app(Both))).sync() as env:
        env.step(CallToolAction(tool_name="hello"))
        assert env.state().step_count == 1


def test_its_models_are_known_without_being_told(serve: Serve) -> None:
    with MCPToolClient.local(Both) as env:
        assert env.step(CallToolAction(tool_name="hello")).observation.result["data"] == "hello"


def test_a_text_that_a_tool_gave_is_that_text_and_the_rest_of_its_result() -> None:
    with MCPToolClient.local(Both) as env:
        observation = env.step(CallToolAction(tool_name="hello")).observation
        assert env.call_tool("hello") == "hello"
    result: Any = observation.result
    assert (isinstance(result, str), result == "hello", f"{result:>6}") == (True, True, " hello")
    assert result.data == result["data"] == result.get("data") == "hello"
    assert result.content[0].text == dict(result)["content"][0]["text"] == "hello"
    assert result[0] == "h" and result.get("nothing") is None and not hasattr(result, "nothing")
    sent = observation.model_dump()["result"]  # as ever, and as 0.10 has it
    assert sent == result and sent["data"] == "hello" and sent["is_error"] is False
    copies: list[Any] = [pickle.loads(pickle.dumps(result)), copy.deepcopy(result)]
    for copied in copies:
        assert copied == "hello" and copied.data == "hello" and len({copied, "hello"}) == 1


def test_what_a_tool_gave_is_read_as_a_dict_and_as_an_object() -> None:
    environment = Both()
    observation = environment.step(CallToolAction(tool_name="hello"))
    environment.close()
    assert observation.result.data == observation.result["data"] == "hello"
    assert observation.result.content[0].text == "hello"
    assert not hasattr(observation.result, "nothing")
    again = CallToolObservation.model_validate_json(observation.model_dump_json())
    assert again.result == observation.result
    assert pickle.loads(pickle.dumps(observation)) == observation
