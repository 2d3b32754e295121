"""What a program for the public package does with harnesses; it prints JSON."""

import dataclasses
import json
import sys

from openenv.core.client_types import StepResult
from openenv.core.env_server.mcp_types import Tool
from openenv.core.harness import (
    RESERVED_TOOL_NAMES,
    CLIHarnessAdapter,
    HarnessRolloutResult,
    HarnessRunLimits,
    LoopOwningSession,
    MCPHarnessAdapter,
    ModelStepResult,
    ResourceSessionFactory,
    SessionMCPBridge,
    StepEnvSessionAdapter,
    ToolResult,
    TrainableSession,
    TrainingTrace,
    TrainingTurn,
    VerifyResult,
    build_harness_rollout_func,
)
from openenv.core.harness.capture.upstream import training_sampling
from openenv.core.llm_client import LLMResponse, ToolCall

ADD = Tool(name="add", description="adds", input_schema={"type": "object"})


class Client:
    """Ends after three steps, the n-th of which gives n."""

    def __init__(self, reward=float):
        self.steps = 0
        self.calls = []
        self.reward = reward

    def reset(self, **arguments):
        self.calls.append(["reset", arguments])
        return StepResult(observation={"n": 0}, reward=None, done=False)

    def step(self, action):
        self.calls.append(["step", action])
        self.steps += 1
        reward = self.reward(self.steps)
        return StepResult(observation={"n": self.steps}, reward=reward, done=self.steps == 3)

    def state(self):
        return {"step_count": self.steps}

    def close(self):
        self.calls.append(["close"])


def session(client=None, **options):
    return StepEnvSessionAdapter(
        client or Client(),
        tool_specs=options.pop("tool_specs", [ADD]),
        action_builder=lambda name, arguments: [name, arguments],
        initial_messages_builder=lambda result, task: [
            {"role": "user", "content": f"{result.observation} {task}"}
        ],
        **options,
    )


def shown(act):
    try:
        result = act()
    except Exception as error:
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
    return dataclasses.asdict(result) if dataclasses.is_dataclass(result) else result


def stepping():
    client = Client()
    one = session(client, task="t", seed=3, episode_id="e", reset_kwargs={"x": 1})
    seen = [one.initial_messages(), [tool.name for tool in one.list_tools()]]
    seen += [shown(lambda: one.verify([]))]
    seen += [shown(lambda: one.call_tool("add", {"a": 1})), shown(lambda: one.verify([{}]))]
    seen += [shown(lambda: one.call_tool("zork", {})), shown(lambda: one.call_tool("reset", {}))]
    seen += [shown(lambda: session(tool_specs=[ADD.model_copy(update={"name": "close"})]))]
    one.close()
    return [*seen, client.calls, sorted(RESERVED_TOOL_NAMES)]


def bridging():
    bridge = SessionMCPBridge(session())
    requests = [
        {"method": "tools/list"},
        {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}},
        {"method": "nope"},
    ]
    answers = [bridge.handle_request({"jsonrpc": "2.0", "id": 1, **one}) for one in requests]
    wrong = [{}, {"params": {"name": "reset"}}, {"params": {"name": "zork"}}, {"jsonrpc": "1"}]
    for one in wrong:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", **one}
        answers.append(bridge.handle_request(asked)["error"]["code"])
    return answers


def said(content="", *calls, prompt=(1,), written=(2,)):
    reply = LLMResponse(content, [ToolCall(*call) for call in calls])
    return ModelStepResult(reply, list(prompt), list(written), [-0.1] * len(written))


KEYS = ("messages", "done", "metrics", "prompt_ids", "completion_ids", "logprobs")


def play(*turns, limits=None):
    it = iter(turns)
    result = MCPHarnessAdapter().run_white_box(lambda *_: next(it), session(), limits)
    events = [[event.type, event.payload] for event in result.events]
    trace = [dataclasses.asdict(entry) for entry in result.tool_trace]
    return [{key: getattr(result, key) for key in KEYS}, events, trace]


ONE = ("i1", "add", {"a": 1})
TWO = ("i2", "add", {"b": 1, "a": 2})


def looping():
    return {
        "words": play(said("hi")),
        "calls": play(said("a", ONE, TWO), said("b", prompt=(), written=())),
        "done": play(said("a", ONE, TWO, ("i3", "add", {}))),
        "turns": play(said("a", ONE), limits=HarnessRunLimits(max_turns=1)),
        "no turns": play(limits=HarnessRunLimits(max_turns=0)),
    }


def rollouts(*turns, **options):
    class Factory(ResourceSessionFactory):
        def create(self, task, seed=None, episode_id=None):
            return session(task=task, **options)

    def step(trainer, one):
        it = iter(turns)
        return lambda *_: next(it)

    rollout_func = build_harness_rollout_func(
        session_factory=Factory(),
        harness_adapter=MCPHarnessAdapter(),
        model_step_builder=step,
        reward_key="r",
    )
    rows = rollout_func(["p", "q"], None)
    rows.pop("env_mask", None)
    return rows


def training():
    turn = {
        "node_id": "n",
        "prompt_token_ids": [1, 2],
        "completion_token_ids": [3],
        "per_token_logps": [-0.5],
        "loss_mask": [0, 0, 1],
        "request": {"messages": []},
        "metadata": {"a": 1},
    }
    trace = TrainingTrace(turns=[turn, {**turn, "node_id": "m"}])
    entries = trace.to_trace_entries()
    again = TrainingTrace.from_entries(entries)
    wrong = [{"loss_mask": [1]}, {"per_token_logps": [1.0]}, {"node_id": ""}, {"z": 1}]
    return {
        "entries": entries,
        "again": again.to_trace_entries() == entries,
        "unique": [one.node_id for one in trace.unique_calls().turns],
        "wrong": [shown(lambda one=one: TrainingTurn(**{**turn, **one})) for one in wrong],
        "sampling": [
            shown(lambda one=one: training_sampling(one))
            for one in ({"temperature": 0.7}, {"temperature": 1, "top_k": 0}, {}, {"top_p": 0.5})
        ],
    }


class Owner:
    def wait_for_completion(self, timeout_s=None):
        return 0

    def fetch_training_trace(self):
        return TrainingTrace(turns=[])


def cli():
    adapter = CLIHarnessAdapter(lambda bridge, one, limits: HarnessRolloutResult(done=True))
    seen = dataclasses.asdict(adapter.run_black_box(session()))
    return [
        {key: seen[key] for key in KEYS},
        shown(lambda: adapter.run_white_box(None, session())),
        shown(lambda: MCPHarnessAdapter().run_black_box(session())),
    ]


def calls_stay_unanswered():
    found = []
    for limits in ({"max_tool_calls_per_turn": 1}, {"max_total_tool_calls": 1}, {}):
        turns = [said("a", ONE, TWO), said("b")] if limits else [said("a", *[ONE] * 4)]
        result, _, trace = play(*turns, limits=HarnessRunLimits(**limits))
        tools = [one for one in result["messages"] if one["role"] == "tool"]
        found.append([len(tools), len(trace), sorted(result["metrics"])])
    return found


def error_is_told():
    told = session(tool_result_builder=lambda *_: ToolResult(error="E"))
    it = iter([said("a", ONE), said("b")])
    return MCPHarnessAdapter().run_white_box(lambda *_: next(it), told).messages[2]["content"]


def two_turns_of_tokens():
    two = said("b", prompt=(1, 2, 7), written=(3,))
    rows = rollouts(said("a", ONE, prompt=(1,), written=(2,)), two)
    return [rows[key][0] for key in ("prompt_ids", "completion_ids", "logprobs")]


def main():
    verdict = VerifyResult(env_reward=9.0, metrics={"k": 1})
    told = {
        "stepping": stepping(),
        "bridging": bridging(),
        "looping": looping(),
        "rollouts": rollouts(said("a", ONE, TWO, ONE)),
        "verified": rollouts(said("a"), verify_builder=lambda *_: verdict),
        "unscored": shown(lambda: rollouts(said("a"))),
        "two rewards": shown(
            lambda: rollouts(said("a", ONE), said("b"), verify_builder=lambda *_: verdict)
        ),
        "training": training(),
        "cli": cli(),
        "kinds": [isinstance(Owner(), kind) for kind in (TrainableSession, LoopOwningSession)],
        "faults": {
            "unanswered": calls_stay_unanswered(),
            "an error": error_is_told(),
            "a mistake": shown(lambda: play(said("a", ("i", "zork", {})), said("b"))[0]["done"]),
            "tokens": two_turns_of_tokens(),
        },
    }
    json.dump(told, sys.stdout, default=str)


if __name__ == "__main__":
    main()
