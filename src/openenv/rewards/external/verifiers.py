"""Bridges to and from the rewards and judges of verifiers (0.4).

In verifiers (https://github.com/PrimeIntellect-ai/verifiers) a task has reward functions,
``@vf.reward async def correct(self, trace)``, and may have judges. Both score a trace, which holds
the conversation. A standalone function takes arguments by name: ``task`` (the task's data) and
``trace``; and, as in versions before 0.4, ``prompt``, ``completion``, ``answer``, ``info`` and
``state``.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from openenv._internal.packages import needs
from openenv._internal.quoting import first_problem
from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory, TrajectoryScorer
from openenv.rewards.external.conversation import (
    Message,
    as_messages,
    from_messages,
    message_text,
    split_prompt,
    task_of,
)
from openenv.rewards.external.fields import Fields
from openenv.rewards.external.scorers import make_score, score_now, scorer_name, to_number

AGENT = "openenv"
# Fields of a task's data that describe the task; the others belong to the infrastructure.
DATA = {"id", "name", "description", "prompt", "system_prompt"}


def _library(needed_by: str) -> Any:
    with needs(needed_by):
        import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]
    return vf


class VerifiersScorer:
    """A task, judge or reward functions of verifiers as a scorer; see `from_verifiers`."""

    def __init__(
        self,
        sources: Sequence[Any],
        data: Callable[[Trajectory[Any, Any]], Mapping[str, Any]],
        messages: Callable[[Trajectory[Any, Any]], list[Message]],
    ) -> None:
        vf = _library("from_verifiers")
        if not sources:
            raise ValueError("expected a task, a judge or a reward function, got nothing")
        for source in sources:
            _check(vf, source)
        self.sources = list(sources)
        self.name = "+".join(_name(vf, source) for source in sources)
        self._data = data
        self._messages = messages

    async def __call__(self, trajectory: Trajectory[Any, Any]) -> Score:
        """Score an episode.

        Raises:
            Unscored: The task lacks a field that a reward needs, a reward is missing or is not a
                number, or two rewards have the same name.
        """
        vf = _library("from_verifiers")
        known, messages = self._data(trajectory), self._messages(trajectory)
        components: dict[str, float] = {}
        for source in self.sources:
            task = _task(vf, source, known)
            trace = _trace(vf, task, messages)
            for name, reward in (await _rewards(vf, source, task, trace, messages, known)).items():
                if name in components:
                    raise Unscored(f"two rewards are called {name}")
                components[name] = reward
        if not components:
            return Score()
        return make_score(math.fsum(components.values()), components)


def from_verifiers(
    *sources: Any,
    data: Callable[[Trajectory[Any, Any]], Mapping[str, Any]] = task_of,
    messages: Callable[[Trajectory[Any, Any]], list[Message]] = as_messages,
) -> VerifiersScorer:
    """Make a trajectory scorer from a task, judge or reward functions of verifiers.

        scorer = from_verifiers(MyTask)                 # all of its rewards, and its judges
        scorer = from_verifiers(vf.ReferenceJudge(config))
        scorer = from_verifiers(exact, length_penalty)  # functions

    The weighted rewards are added up, as in verifiers, and become the components. There is no
    runtime after an episode, so functions that need a runtime are refused.

    Args:
        *sources: Sources of rewards: a `vf.Task`; a class of tasks, which is created from the
            task's data for each episode; a `vf.Judge`; or a function, with the weight that
            ``@vf.reward(weight=...)`` set.
        data: Function that returns the fields of the task's data; by default `task_of`.
        messages: Function that converts an episode to a conversation.

    Raises:
        MissingPackage: verifiers is not installed.
        TypeError: A source has another type.
        ValueError: A source needs a runtime, or there is no source.
    """
    return VerifiersScorer(sources, data, messages)


# ------------------------------------------------------------------ sources of rewards


def _check(vf: Any, source: Any) -> None:
    """Refuse a source that needs more than a conversation."""
    if isinstance(source, vf.Task) or (isinstance(source, type) and issubclass(source, vf.Task)):
        functions = _list_rewards(source)
    elif isinstance(source, vf.Judge):
        functions = [source.score]
    elif callable(source) and not isinstance(source, type):
        functions = [source]
    else:
        raise TypeError(f"expected a vf.Task, a vf.Judge or a reward function, got {source!r:.100}")
    for function in functions:
        wanted = inspect.signature(function).parameters.get("runtime")
        if wanted is not None and wanted.default is wanted.empty:
            name = getattr(function, "__name__", function)
            raise ValueError(f"{name} needs a runtime, which does not exist after an episode")


def _list_rewards(task: Any) -> list[Any]:
    cls = task if isinstance(task, type) else type(task)
    found = (getattr(cls, name, None) for name in dir(cls))
    return [one for one in found if callable(one) and getattr(one, "reward", False) is True]


def _name(vf: Any, source: Any) -> str:
    if isinstance(source, vf.Judge):
        return str(source.reward_name)
    if isinstance(source, type):
        return source.__name__
    return type(source).__name__ if isinstance(source, vf.Task) else source.__name__


def _task(vf: Any, source: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(source, vf.Task):
        return source
    cls: Any = source if isinstance(source, type) else vf.Task
    model = cls.data_type() if isinstance(source, type) else vf.WireTaskData
    infrastructure = vf.TaskData.model_fields.keys() - DATA
    fields = {name: value for name, value in known.items() if name not in infrastructure}
    prompt = known.get("prompt")
    fields["prompt"] = prompt if isinstance(prompt, str) else None
    if isinstance(prompt, list):
        fields["prompt"] = [_to_message(vf, message) for message in prompt]
    try:
        return cls(model.model_validate(fields))
    except ValidationError as error:
        what = first_problem(error)
        raise Unscored(f"the task lacks what {model.__name__} needs: {what}") from error


async def _rewards(
    vf: Any,
    source: Any,
    task: Any,
    trace: Any,
    messages: list[Message],
    known: Mapping[str, Any],
) -> dict[str, float]:
    if isinstance(source, vf.Task | type):
        await task.score(trace)
        missing = [name for name, reward in trace.rewards.items() if reward is None]
        if missing:
            raise Unscored(f"there is no reward of {', '.join(missing)}")
        return {name: reward.value for name, reward in trace.rewards.items()}
    if isinstance(source, vf.Judge):
        name, weight = source.reward_name, source.config.weight
        given = await source.score(task=task.data, trace=trace)
    else:
        name, weight = source.__name__, getattr(source, "_vf_weight", 1.0)
        given = await _call_function(source, task, trace, messages, known)
    parts = given if isinstance(given, Mapping) else {name: given}
    return {part: to_number(part, value) * weight for part, value in parts.items()}


async def _call_function(
    function: Callable[..., Any],
    task: Any,
    trace: Any,
    messages: list[Message],
    known: Mapping[str, Any],
) -> Any:
    prompt, completion = split_prompt(messages)
    available = {"prompt": prompt, "completion": completion, "state": {}, "info": {}, **known}
    available |= {"task": task.data, "trace": trace, "prompt": prompt}
    parameters = inspect.signature(function).parameters.values()
    named = [one for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    missing = [one.name for one in named if one.default is one.empty and one.name not in available]
    if missing:
        raise Unscored(
            f"{function.__name__} takes {', '.join(missing)}, which the task does not have"
        )
    takes_all = any(one.kind == one.VAR_KEYWORD for one in parameters)
    names = available if takes_all else [one.name for one in named if one.name in available]
    outcome = function(**{name: available[name] for name in names})
    return await outcome if hasattr(outcome, "__await__") else outcome


# ------------------------------------------------------------------ an episode as a trace


def _trace(vf: Any, task: Any, messages: list[Message]) -> Any:
    """Build the trace that verifiers would have recorded for an episode."""
    prompt, completion = split_prompt(messages)
    nodes = [
        vf.MessageNode(
            parent=at - 1 if at else None,
            message=_to_message(vf, message),
            sampled=at >= len(prompt) and message.get("role") == "assistant",
        )
        for at, message in enumerate([*prompt, *completion])
    ]
    agent = vf.AgentInfo(config=vf.AgentConfig(), name=AGENT)
    return vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data),
        agent=agent,
        nodes=nodes,
        is_completed=True,
        ok=True,
    )


def _to_message(vf: Any, message: Message) -> Any:
    role, content = message.get("role"), message.get("content") or ""
    if role == "assistant":
        return vf.AssistantMessage(content=message_text(message), tool_calls=_calls(vf, message))
    if role == "tool":
        call = str(message.get("tool_call_id") or "")
        return vf.ToolMessage(tool_call_id=call, content=content, name=message.get("name"))
    return (vf.SystemMessage if role == "system" else vf.UserMessage)(content=content)


def _calls(vf: Any, message: Message) -> list[Any] | None:
    made = []
    for call in message.get("tool_calls") or []:
        function = call.get("function") or {}
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        name = str(function.get("name", ""))
        made.append(vf.ToolCall(id=str(call.get("id", "")), name=name, arguments=text))
    return made or None


# ------------------------------------------------------------------ the reverse direction


def to_verifiers(
    scorer: TrajectoryScorer,
    *,
    name: str | None = None,
    weight: float = 1.0,
    episode: Callable[..., Trajectory[Any, Any]] = from_messages,
) -> Callable[..., Any]:
    """Make a reward of verifiers from a trajectory scorer.

        class MyTask(vf.Task[MyData]):
            solved = to_verifiers(scorer)

    The reward may be an attribute of a task, as here, or be named in a configuration: ``fn =
    "my_module:solved"``. The task of an episode has the ``id`` and the ``prompt`` of the task's
    data, and all of the data as criteria. If the episode cannot be scored, the reward raises
    `Unscored`, and verifiers records an error instead of a reward.

    Args:
        scorer: The scorer; use `from_rubric` for a rubric.
        name: Name of the reward; by default the scorer's name.
        weight: Weight of the reward. Default: 1.
        episode: Function that builds an episode from a prompt, a completion and a keyword ``task``.

    Raises:
        MissingPackage: verifiers is not installed.
    """
    vf = _library("to_verifiers")

    async def reward(self: Any = None, task: Any = None, trace: Any = None) -> float:
        found = await score_now(scorer, _episode(episode, task, trace))
        if found.value is None:
            raise Unscored(f"{reward.__name__} had nothing to score")
        return found.value

    reward.__name__ = reward.__qualname__ = name or scorer_name(scorer).rpartition(".")[2]
    marked: Callable[..., Any] = vf.reward(weight=weight)(reward)
    return marked


def _episode(
    episode: Callable[..., Trajectory[Any, Any]], data: Any, trace: Any
) -> Trajectory[Any, Any]:
    spoken = [at for at, node in enumerate(trace.nodes) if node.sampled]
    first = spoken[0] if spoken else len(trace.nodes)
    messages = [_plain(message) for message in trace.messages]
    known = Fields(data.model_dump(mode="json"))
    task = Fields(id=known.get("id"), prompt=known.get("prompt"), criteria=known, metadata=Fields())
    return episode(messages[:first], messages[first:], task=task)


def _plain(message: Any) -> Message:
    plain: Message = message.model_dump(mode="json", exclude_none=True)
    if plain.get("tool_calls"):
        plain["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in plain["tool_calls"]
        ]
    return plain
