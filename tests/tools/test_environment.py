from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from mcp.server.mcpserver import MCPServer
from support.waiting import eventually

from openenv import Action, NotSupported, Observation, State, Transform, create_app
from openenv.client.generic import GenericEnvClient
from openenv.errors import Refused, Unscored
from openenv.execution.commands import Reset, Step
from openenv.execution.session import Session
from openenv.execution.spec import EnvironmentSpec
from openenv.execution.tools import build_call_command
from openenv.reward import REWARD_INFO
from openenv.sandbox import kinds
from openenv.settings import ServerMode
from openenv.tools import (
    CallToolAction,
    CallToolObservation,
    ListToolsAction,
    MCPEnvironment,
    ToolErrorType,
    tool,
)


class Shop(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    TOOL_TIMEOUT_S = 0.3

    def __init__(self, mcp_server: Any = None, **options: Any) -> None:
        super().__init__(mcp_server, **options)
        self.threads: list[int] = []

        @self.tool(mode="simulation")
        def price() -> str:
            return "simulated"

        def real_price() -> str:
            return "real"

        real_price.__name__ = "price"
        self.tool(mode="production")(real_price)

        @self.tool(mode="production")
        def pay() -> str:
            return "paid"

    @tool
    def buy(self, what: str, count: int = 1) -> dict[str, Any]:
        """Buy something."""
        self.threads.append(threading.get_ident())
        return {"bought": what, "count": count}

    @tool
    async def wait(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "waited"

    @tool
    def fail(self, why: str) -> None:
        raise RuntimeError(why)


NO_TIME = {"arguments": {"seconds": 0}}


def call(name: str, **arguments: Any) -> CallToolAction:
    return CallToolAction(tool_name=name, arguments=arguments)


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    yield made
    made.close()


# ------------------------------------------------------------------ steps


def test_tools_are_listed_and_called_by_steps(shop: Shop) -> None:
    shop.reset(episode_id="e")
    tools = {one.name: one for one in shop.step(ListToolsAction()).tools}
    assert set(tools) == {"buy", "wait", "fail", "price"}
    assert tools["buy"].description == "Buy something."
    observation = shop.step(call("buy", what="tea"))
    assert observation.result["data"] == {"bought": "tea", "count": 1}
    assert (observation.error, observation.reward, observation.done) == (None, None, False)
    assert shop.state == State(episode_id="e", step_count=1)


async def _late() -> str:
    raise asyncio.TimeoutError("the shop is far away")


def _late_on_a_thread() -> str:
    raise TimeoutError("the shop is far away")


@pytest.mark.parametrize("function", [_late, _late_on_a_thread])
def test_a_timeout_of_a_tool_s_own_is_not_its_limit(shop: Shop, function: Any) -> None:
    shop.tool()(function)
    shop.reset()
    error = shop.step(call(function.__name__)).error
    assert error is not None
    assert error.error_type is ToolErrorType.EXECUTION_ERROR
    assert error.message.endswith("TimeoutError: the shop is far away")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "kind", "text"),
    [
        (call("nope"), ToolErrorType.TOOL_NOT_FOUND, "Unknown tool: 'nope'"),
        (call("buy"), ToolErrorType.INVALID_ARGS, "what: Field required"),
        (call("buy", what="a", size=3), ToolErrorType.INVALID_ARGS, "size: Extra inputs"),
        (call("wait", seconds=9), ToolErrorType.TIMEOUT, "wait took longer than 0.3 s"),
        # The kind is that of the failure, whatever its words are.
        (call("fail", why="argument list not found"), ToolErrorType.EXECUTION_ERROR, "not found"),
    ],
)
def test_failures_are_observations_of_their_kind(
    shop: Shop, action: CallToolAction, kind: ToolErrorType, text: str
) -> None:
    observation = shop.step(action)
    assert observation.result is None
    assert observation.error.error_type is kind
    assert text in observation.error.message


@pytest.mark.slow
def test_the_caller_may_give_it_less_time_or_more(shop: Shop) -> None:
    assert shop.step(call("wait", seconds=0.1), timeout_s=0.01).error is not None
    assert shop.step(call("wait", seconds=0.4), timeout_s=5).error is None


def test_secrets_stay_out_of_what_an_agent_is_told(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "hunter2hunter2")
    message = shop.step(call("fail", why="key hunter2hunter2 refused")).error.message
    assert message == "RuntimeError: key *** refused"


def test_steps_work_inside_a_running_loop_too(shop: Shop) -> None:
    async def main() -> None:
        assert shop.step(call("wait", seconds=0)).result["data"] == "waited"

    asyncio.run(main())


def test_a_plain_tool_does_not_hold_up_the_loop() -> None:
    begun, goes_on = threading.Event(), threading.Event()

    class Slow(MCPEnvironment):
        @tool
        def nap(self) -> str:
            begun.set()
            assert goes_on.wait(30), "the loop never got its turn"
            return "rested"

    async def main() -> None:
        slow = Slow()
        napping = asyncio.ensure_future(slow.step_async(call("nap")))
        await eventually(begun.is_set)
        assert not napping.done()
        goes_on.set()
        assert (await napping).result["data"] == "rested"
        await slow.close_async()

    asyncio.run(main())


def test_one_that_never_blocks_is_called_where_it_is() -> None:
    class Quick(Shop):
        NEVER_BLOCKS = True

    async def main() -> None:
        quick = Quick()
        await quick.step_async(call("buy", what="tea"))
        assert quick.threads == [threading.get_ident()]
        await quick.close_async()

    asyncio.run(main())


def test_a_step_that_its_author_wrote_is_the_one_that_is_called() -> None:
    class Counting(Shop):
        steps = 0

        def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Any:
            self.steps += 1
            return super().step(action, timeout_s=timeout_s, **kwargs)

        @property
        def state(self) -> State:
            return State(step_count=self.steps)

    with GenericEnvClient.local(Counting).sync() as env:
        env.reset()
        for _ in range(3):
            result = env.step(
                {"type": "call_tool", "tool_name": "wait", "arguments": {"seconds": 0}}
            )
        assert result.observation["result"]["data"] == "waited"
        assert env.state()["step_count"] == 3


def test_other_actions_go_to_the_author_or_are_refused(shop: Shop) -> None:
    class Talk(Action):
        text: str

    class Talking(Shop):
        def _step_impl(self, action: Action, timeout_s: float | None = None, **_: Any) -> Any:
            assert isinstance(action, Talk)
            return Observation(reward=1.0, metadata={"text": action.text})

    with pytest.raises(NotSupported, match="Shop takes ListToolsAction and CallToolAction, not"):
        shop.step(Talk(text="hi"))
    talking = Talking()
    assert talking.step(Talk(text="hi")).metadata == {"text": "hi"}
    talking.close()


# ------------------------------------------------------------------ rubric, transform, modes


def test_rubric_and_transform_see_every_call() -> None:
    class Rubric:
        def reset(self) -> None:
            calls.clear()

        def __call__(self, action: Action, observation: CallToolObservation) -> float:
            assert isinstance(action, CallToolAction)
            calls.append(action.tool_name)
            return 0.5 if observation.error is None else -1.0

    class Shout(Transform[CallToolObservation]):
        def __call__(self, observation: CallToolObservation) -> CallToolObservation:
            if observation.result:
                observation.result["data"] = str(observation.result["data"]).upper()
            return observation

    calls: list[str] = []
    shop = Shop(rubric=Rubric(), transform=Shout())
    shop.reset()
    assert shop.step(call("price")).reward == 0.5
    assert shop.step(call("nope")).reward == -1.0
    assert shop.step(call("price")).result["data"] == "SIMULATED"
    assert calls == ["price", "nope", "price"]
    shop.reset()
    assert calls == []
    shop.close()


def test_a_rubric_that_raises_is_an_error_and_no_zero() -> None:
    def rubric(action: Action, observation: Observation) -> float:
        raise ArithmeticError("no score")

    shop = Shop(rubric=rubric)
    with pytest.raises(ArithmeticError):
        shop.step(call("price"))
    shop.close()


def test_a_rubric_that_cannot_score_says_why() -> None:
    def rubric(action: Action, observation: Observation) -> float:
        raise Unscored("the judge is out")

    shop = Shop(rubric=rubric)
    seen = shop.step(call("price"))
    assert seen.reward is None and seen.metadata[REWARD_INFO] == {"unscored": "the judge is out"}
    shop.close()


class Closing(Transform[CallToolObservation]):
    """The shop closes once something is bought."""

    def __call__(self, observation: CallToolObservation) -> CallToolObservation:
        observation.done = observation.tool_name == "buy"
        return observation


@pytest.mark.anyio
@pytest.mark.parametrize("is_agent", [True, False])
async def test_an_episode_is_scored_as_a_whole_whoever_acts(is_agent: bool) -> None:
    async def scorer(trajectory: Any) -> list[float]:
        return [float(action.tool_name == "buy") for action, _ in trajectory]

    def make() -> Shop:
        shop = Shop(transform=Closing())
        shop.trajectory_scorer = scorer
        return shop

    session = Session(EnvironmentSpec.of(make, CallToolAction, CallToolObservation))
    await session.open()
    await session.handle(Reset({}))
    for name, arguments in (("price", {}), ("buy", {"what": "tea"})):
        command = (
            build_call_command(session.spec, name, arguments)
            if is_agent
            else Step({"type": "call_tool", "tool_name": name, "arguments": arguments})
        )
        seen = await session.handle(command)
    assert seen.done and seen.reward == 1.0
    told = seen.metadata[REWARD_INFO] if is_agent else seen.reward_info
    assert told == {"step_rewards": [0.0, 1.0]}
    await session.close()


def test_each_mode_has_its_tools(shop: Shop) -> None:
    assert shop.step(call("price")).result["data"] == "simulated"
    assert shop.step(call("pay")).error.error_type is ToolErrorType.TOOL_NOT_FOUND
    shop.mcp_serve_in(ServerMode.PRODUCTION)
    assert shop.step(call("price")).result["data"] == "real"
    assert shop.step(call("pay")).result["data"] == "paid"
    with pytest.raises(ValueError, match="unknown mode 'testing'"):
        shop.tool(mode="testing")


def test_an_author_may_set_the_mode_and_a_server_in_production_has_its_own(shop: Shop) -> None:
    shop._mode = "production"
    assert {one.name for one in shop.step(ListToolsAction()).tools} >= {"price", "pay"}
    assert shop.step(call("price")).result["data"] == "real"
    shop.mcp_serve_in(ServerMode.SIMULATION)
    assert shop.step(call("price")).result["data"] == "real"
    shop._mode = "simulation"
    assert shop.step(call("price")).result["data"] == "simulated"
    assert shop.get_callables()["price"]() == "simulated"
    shop.mcp_serve_in(ServerMode.PRODUCTION)
    assert shop.get_callables()["pay"]() == "paid"
    shop._mode = "of its own kind"  # an attribute of the author's that means something else
    assert shop.step(call("price")).result["data"] == "real"


@pytest.mark.slow
def test_code_calls_the_tools_of_the_mode_that_an_author_sets(shop: Shop) -> None:
    shop.TOOL_TIMEOUT_S = 20  # type: ignore[misc]
    for mode, expected in (("simulation", "simulated"), ("production", "real, paid")):
        shop._mode = mode
        code = "result = price()" if mode == "simulation" else "result = f'{price()}, {pay()}'"
        assert shop.execute_code(code).metadata["result"] == expected


@pytest.mark.slow
def test_code_calls_tools_in_a_sandbox(shop: Shop) -> None:
    shop.TOOL_TIMEOUT_S = 20  # type: ignore[misc]
    assert shop.supports_code_mode
    ran = shop.execute_code("print('so'); result = buy(what='tea', count=2)")
    assert (ran.metadata["stdout"], ran.metadata["exit_code"]) == ("so\n", 0)
    assert ran.metadata["result"] == {"bought": "tea", "count": 2}
    again = shop.execute_code("fail(why=str(6 * 7))")
    assert again.metadata["error"] == "ToolError: RuntimeError: 42"
    assert again.metadata["result"] is None
    assert shop.execute_code("result = {print}").metadata["result"] == "{<built-in function print>}"
    shop.TOOL_TIMEOUT_S = 0.5  # type: ignore[misc]
    assert "longer than 0.5 s" in shop.execute_code("while True: pass").metadata["error"]


def test_code_is_run_nowhere_but_in_a_sandbox(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shop, "CODE_SANDBOX", "kernel")
    monkeypatch.setenv("PATH", "/nowhere")
    kinds._tried.cache_clear()
    try:
        assert not shop.supports_code_mode
        with pytest.raises(NotSupported, match="gvisor: there is no runsc; apt-get install"):
            shop.execute_code("result = 1")
    finally:
        kinds._tried.cache_clear()


def test_tools_are_functions_too(shop: Shop) -> None:
    callables = shop.get_callables()
    assert callables["buy"](what="tea", count=2) == {"bought": "tea", "count": 2}
    with pytest.raises(RuntimeError, match="RuntimeError: why"):
        callables["fail"](why="why")


# ------------------------------------------------------------------ servers


def fastmcp_server() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("shop")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool
    async def remember(what: str, context: Context) -> str:
        before = await context.get_state("what")
        await context.set_state("what", what)
        await context.report_progress(1, 1)
        return f"{before} before {what}"

    @server.tool
    def broken() -> str:
        raise RuntimeError("out of order")

    return server


def sdk_server() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("shop")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool()
    def broken() -> str:
        raise RuntimeError("out of order")

    return server


@pytest.mark.parametrize("make", [fastmcp_server, sdk_server])
def test_a_server_brings_its_tools(make: Any) -> None:
    shop = Shop(make())
    shop.TOOL_TIMEOUT_S = 5  # type: ignore[misc]
    names = [one.name for one in shop.step(ListToolsAction()).tools]
    assert {"buy", "add", "broken"} <= set(names)
    observation = shop.step(call("add", a=1, b=2))
    assert observation.result["structured_content"] == {"result": 3}
    assert shop.step(call("buy", what="tea")).result["data"]["bought"] == "tea"
    broken = shop.step(call("broken"))
    assert broken.error.error_type is ToolErrorType.EXECUTION_ERROR
    assert "out of order" in broken.error.message or "broken" in broken.error.message
    assert shop.step(call("nope")).error.error_type is ToolErrorType.TOOL_NOT_FOUND
    shop.close()


def test_a_tool_of_fastmcp_has_its_context_through_an_episode() -> None:
    shop = Shop(fastmcp_server())
    shop.TOOL_TIMEOUT_S = 5  # type: ignore[misc]
    shop.reset()
    assert shop.step(call("remember", what="a")).result["data"] == "None before a"
    assert shop.step(call("remember", what="b")).result["data"] == "a before b"
    shop.close()


def test_wrong_arguments_of_a_servers_tool_are_of_their_kind() -> None:
    shop = Shop(fastmcp_server())
    observation = shop.step(call("add", a="one", b=2))
    assert observation.error.error_type is ToolErrorType.INVALID_ARGS
    shop.close()


@pytest.mark.parametrize("name", ["reset", "step", "state", "close"])
def test_a_server_whose_tool_controls_the_simulation_is_refused(name: str) -> None:
    server: FastMCP[Any] = FastMCP("x")
    server.tool(lambda: None, name=name)
    with pytest.raises(ValueError, match=f"no tool may be called '{name}'"):
        Shop(server)
    with pytest.raises(ValueError, match=f"no tool may be called '{name}'"):
        tool(name=name)(lambda self: None)
        type("Bad", (MCPEnvironment,), {"x": tool(name=name)(lambda self: None)})()


def test_a_reserved_name_is_that_of_no_tool() -> None:
    for shop in (Shop(), Shop(fastmcp_server()), Shop(sdk_server())):
        observation = shop.step(call("reset"))
        assert observation.error.error_type is ToolErrorType.TOOL_NOT_FOUND
        shop.close()


def test_a_servers_tool_may_be_called_what_ours_may_not() -> None:
    server: FastMCP[Any] = FastMCP("x")

    @server.tool(name="coffee/tea")
    def served() -> str:
        return "served"

    shop = Shop(server)
    shop.TOOL_TIMEOUT_S = 5  # type: ignore[misc]
    assert "coffee/tea" in {one.name for one in shop.step(ListToolsAction()).tools}
    assert shop.step(call("coffee/tea")).result["data"] == "served"
    shop.close()


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_server_that_keeps_its_answer_is_not_waited_for_forever() -> None:
    server: FastMCP[Any] = FastMCP("x")

    @server.resource("slow://rules")
    async def rules() -> str:
        await asyncio.Event().wait()
        return "never"

    shop = Shop(server)
    shop.TOOL_TIMEOUT_S = 30  # type: ignore[misc]  # to connect, on a busy machine
    why = r"did not answer resources/read within 0\.3 s"
    listed = await shop.mcp_ask("resources/list", {})
    assert listed is not None
    assert [one["uri"] for one in listed["resources"]] == ["slow://rules"]
    shop.TOOL_TIMEOUT_S = 0.3  # type: ignore[misc]
    with pytest.raises(Refused, match=why):
        await shop.mcp_ask("resources/read", {"uri": "slow://rules"})
    shop.TOOL_TIMEOUT_S = 30  # type: ignore[misc]
    assert await shop.mcp_ask("resources/list", {}) == listed
    await shop.close_async()


def test_what_is_no_server_is_refused() -> None:
    with pytest.raises(TypeError, match=r"dict is no MCP server; expected one of FastMCP"):
        Shop({})


# ------------------------------------------------------------------ in a server


def test_the_models_need_not_be_named() -> None:
    app = create_app(Shop)
    assert app.state.openenv_managers[0].spec.action_cls is CallToolAction


def test_it_is_stepped_over_the_network(serve: Any) -> None:
    url = serve(create_app(Shop))
    with GenericEnvClient(base_url=url).sync() as env:
        env.reset()
        listed = env.step({"type": "list_tools"}).observation["tools"]
        assert {one["name"] for one in listed} == {"buy", "wait", "fail", "price"}
        result = env.step({"type": "call_tool", "tool_name": "buy", "arguments": {"what": "tea"}})
        assert result.observation["result"]["data"] == {"bought": "tea", "count": 1}
        assert env.state()["step_count"] == 1
