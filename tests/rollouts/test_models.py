"""Language models act by tools, by JSON or by text, and are told what was wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from rollouts.worlds import Talk
from support.environments import Counter
from support.llm_server import Asked, Failure, Reply, llm_server

from openenv import Action, EnvClient, Environment, Observation, Private, State, create_app
from openenv.rollouts import PolicyError, Rollout, RolloutLimits, policy_named, rollout
from openenv.rollouts.policies.views import view
from openenv.tasks import Task
from openenv.tools.environment import MCPEnvironment

TASK = Task(id="t", prompt="Say over.")


def play(url: str, env: Any = Talk, kind: str = "openai", **options: Any) -> Rollout:
    run_options = {k: options.pop(k) for k in ("limits", "error_budget", "n") if k in options}
    policy = policy_named(f"{kind}:toy", base_url=url, api_key="k", **options)
    (found,) = rollout(env, policy, [TASK], concurrency=1, **run_options).rollouts
    return found


def says(word: str) -> Reply:
    return Reply("", calls=[("say", {"word": word})])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_model_acts_by_the_tools_of_the_environment(kind: str) -> None:
    with llm_server([says("a"), says("over")]) as server:
        found = play(server.url, kind=kind)
    assert [step.action for step in found.steps] == [{"word": "a"}, {"word": "over"}]
    assert found.outcome == "done"
    assert found.usage.model_calls == 2
    assert found.usage.prompt_tokens > 0
    assert [message["role"] for message in found.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert found.messages[0]["content"].startswith("Say over.")
    assert found.messages[2]["content"] == '{"words": ["a"]}'
    assert (found.steps[0].policy or {})["calls"] == [{"name": "say", "arguments": {"word": "a"}}]


def test_a_model_is_shown_no_reward_and_no_metadata() -> None:
    with llm_server([says("aaaa"), says("over")]) as server:
        play(server.url)
    for asked in server.asked:
        assert "reward" not in str(asked.messages)
        assert "seed" not in str(asked.messages)


def test_a_model_is_told_of_the_tools() -> None:
    with llm_server([says("over")]) as server:
        play(server.url)
    (tool,) = server.asked[0].body["tools"]
    assert tool["function"]["name"] == "say"
    assert tool["function"]["parameters"]["required"] == ["word"]


def test_several_calls_at_once_are_carried_out_one_after_the_other() -> None:
    both = Reply("", calls=[("say", {"word": "a"}), ("say", {"word": "b"})])
    with llm_server([both, says("over")]) as server:
        found = play(server.url)
    assert [step.action["word"] for step in found.steps] == ["a", "b", "over"]
    assert found.usage.model_calls == 2
    assert [message["role"] for message in found.messages].count("tool") == 2


def test_of_several_calls_none_is_carried_out_after_one_that_was_refused() -> None:
    both = Reply("", calls=[("say", {"word": "rude"}), ("say", {"word": "b"})])
    with llm_server([both, says("over")]) as server:
        found = play(server.url)
    assert [step.action["word"] for step in found.steps] == ["over"]
    told = [message["content"] for message in found.messages if message["role"] == "tool"]
    assert told == ["Error: mind your language", "not carried out, since a call before it was not"]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply("", calls=[("speak", {"word": "a"})]), "there is no tool 'speak'"),
        (Reply("", calls=[("say", {"words": "a"})]), "words"),
        (says("rude"), "mind your language"),
    ],
)
def test_a_call_that_comes_to_nothing_is_told_of_and_made_anew(reply: Reply, told: str) -> None:
    with llm_server([reply, says("over")]) as server:
        found = play(server.url)
    assert found.outcome == "done"
    assert told in found.messages[2]["content"]
    (refused,) = (found.steps[0].policy or {})["refused"]
    assert told in refused["why"]
    assert found.usage.model_calls == 2


def test_a_model_that_goes_on_so_is_given_up() -> None:
    with llm_server(says("rude")) as server:
        found = play(server.url, limits=RolloutLimits(invalid_actions=3))
    assert (found.outcome, found.limit) == ("limit", "invalid_actions")
    assert len(server.asked) == 3 == len(found.refused)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "say", "arguments": {"word": "over"}}',
        'Let me think {about} it.\n```json\n{"word": "over"}\n```',
        '<tool_call>{"name": "say", "arguments": {"word": "over"}}</tool_call>',
    ],
)
def test_a_model_may_act_by_json(text: str) -> None:
    with llm_server(text) as server:
        found = play(server.url, act_by="json")
    assert found.steps[0].action == {"word": "over"}
    assert "tools" not in server.asked[0].body
    assert "say" in str(server.asked[0].messages[0])


def test_where_an_action_is_a_text_any_reply_is_one() -> None:
    with llm_server(["hello there", "over"]) as server:
        found = play(server.url)
    assert [step.action["word"] for step in found.steps] == ["hello there", "over"]
    assert [message["role"] for message in found.messages] == ["user", "assistant"] * 2


def test_a_model_that_is_to_call_tools_may_not_just_talk() -> None:
    with llm_server(["over", says("over")]) as server:
        found = play(server.url, act_by="tools")
    assert found.outcome == "done"
    assert "call one of these tools: say" in found.messages[2]["content"]


def test_other_actions_than_texts_are_never_guessed() -> None:
    with llm_server(["I would rather talk", '{"what": "done"}']) as server:
        found = play(server.url, Counter)
    assert found.steps[0].action == {"what": "done"}
    assert len((found.steps[0].policy or {})["refused"]) == 1


class Calculator(MCPEnvironment):
    """Adds, by a tool."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        from fastmcp import FastMCP

        server = FastMCP("calculator")

        @server.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        super().__init__(server)

    def reset(self, seed: Any = None, episode_id: Any = None, **kwargs: Any) -> Any:
        return Observation()

    @property
    def state(self) -> Any:
        return State()

    def _step_impl(self, action: Any, timeout_s: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError


def test_tools_of_the_environment_are_called_by_steps() -> None:
    replies = [Reply("", calls=[("add", {"a": 2, "b": 3})])] * 2
    with llm_server(replies) as server:
        found = play(server.url, Calculator, limits=RolloutLimits(steps=2))
    assert found.steps[0].action["tool_name"] == "add"
    assert found.messages[2] == {"role": "tool", "tool_call_id": "call_0_0", "content": "5"}


# ------------------------------------------------------------------ tokens, failures


def test_a_model_writes_no_more_than_its_tokens() -> None:
    def talk(asked: Asked) -> str:
        return " ".join(["word"] * min(5, asked.body["max_tokens"]))

    with llm_server(talk) as server:
        found = play(server.url, limits=RolloutLimits(tokens=12))
    assert (found.outcome, found.limit) == ("limit", "tokens")
    assert [asked.body["max_tokens"] for asked in server.asked] == [12, 7, 2]
    assert found.usage.completion_tokens == 12


@pytest.mark.slow
def test_a_model_that_has_too_much_to_do_is_asked_anew_and_less() -> None:
    first = True

    def reply(asked: Asked) -> Any:
        nonlocal first
        if first and asked.number < 6:
            return Failure(429, retry_after_s=0)
        first = False
        return says("over")

    from openenv.rewards.llm.openai import OpenAIClient
    from openenv.rollouts.policies.models import LLMPolicy

    with llm_server(reply) as server:
        policy = LLMPolicy(OpenAIClient(server.url, None, "toy", max_retries=0))
        tasks = [Task(id=f"t{n}") for n in range(12)]
        run = rollout(Talk, policy, tasks, concurrency=4, retries=6)
    summary = run.summary()
    assert summary.outcomes == {"done": 12}
    assert summary.failures == {"LLMError": 6}
    assert min(places for _, places, _ in summary.pace) < 4
    assert {f.at for r in run for f in r.failures} == {"policy"}


@pytest.mark.slow
def test_a_model_that_cannot_be_reached_is_asked_anew() -> None:
    from openenv.rewards.llm.openai import OpenAIClient
    from openenv.rollouts.policies.models import LLMPolicy

    with llm_server() as server:
        policy = LLMPolicy(OpenAIClient(server.url, None, "toy", max_retries=0))
    (found,) = rollout(Talk, policy, [TASK], retries=1, error_budget=1).rollouts
    assert [(f.type, f.is_retried) for f in found.failures] == [
        ("LLMUnreachable", True),
        ("LLMUnreachable", False),
    ]


@pytest.mark.parametrize(("options", "most"), [({}, 4096), ({"max_tokens": 7}, 7)])
def test_a_reply_may_be_as_long_as_is_said_wherever_the_model_is(
    options: dict[str, Any], most: int
) -> None:
    with llm_server([says("over")]) as server:
        play(server.url, **options)
    assert server.asked[0].body["max_tokens"] == most


def test_a_model_that_says_no_is_not_asked_anew() -> None:
    with llm_server(Failure(401)) as server:
        found = play(server.url, error_budget=1)
        assert len(server.asked) == 1
    assert found.outcome == "failed"
    assert [failure.is_retried for failure in found.failures] == [False]


@pytest.mark.parametrize("make", [policy_named])
def test_a_hosted_model_needs_a_key(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(PolicyError, match="OPENAI_API_KEY"):
        make("openai:gpt-9")
    with pytest.raises(PolicyError, match="asks no server"):
        make("random", base_url="http://x")
    with pytest.raises(PolicyError, match="act_by"):
        make("openai:x", base_url="http://x", act_by="telepathy")


# ------------------------------------------------------------------ what is shown


class Cards(Observation):
    shown: str = "ace"
    count: int = 3
    hidden: Annotated[str, Private] = "the answer is xyzzy"


class Card(Action):
    count: int = 0


class Dealer(Environment[Card, Cards, State]):
    """Has a field that agents never see."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None) -> Cards:  # type: ignore[override]
        return Cards(metadata={"deck": "plugh"})

    def step(self, action: Card) -> Cards:  # type: ignore[override]
        return Cards(done=True, reward=0.4321, metadata={"deck": "plugh"})

    @property
    def state(self) -> State:
        return State()


class DealerEnv(EnvClient[Card, Cards, State]):
    pass


@pytest.mark.parametrize("kind", ["class", "application", "typed"])
def test_a_model_never_sees_what_is_private_or_the_trainers(kind: str) -> None:
    forms: dict[str, Any] = {
        "class": Dealer,
        "application": create_app(Dealer),
        "typed": lambda: DealerEnv.local(Dealer),
    }
    with llm_server([Reply("", calls=[("card", {"count": 1})])]) as server:
        found = play(server.url, forms[kind])
    (asked,) = server.asked
    assert asked.last == 'Say over.\n\n{"shown": "ace", "count": 3}'
    assert "xyzzy" not in str(found.messages)


def test_a_view_leaves_out_what_is_the_trainers() -> None:
    last = Cards(done=True, reward=0.4321, metadata={"deck": "plugh"})
    assert view(last) == '{"shown": "ace", "count": 3}'
    assert view({"word": "hello", "reward": 1.0, "done": True, "metadata": {}}) == "hello"
    assert view({"shown": "ace", "hidden": "x"}, frozenset({"shown"})) == "ace"
