"""Bridges to and from the scorers of Inspect AI (https://inspect.aisi.org.uk).

In Inspect a scorer is an ``async`` function of a sample's state, which holds the conversation, and
of a target, the right answer. The score's value may be a number, a letter (``C`` is 1, ``P`` 0.5,
``I`` and ``N`` 0), or several of them by name; ``NaN`` means that the sample was not scored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openenv._internal.json import read_json
from openenv._internal.packages import needs
from openenv.errors import Unscored
from openenv.reward import Score
from openenv.rewards.delayed import Trajectory, TrajectoryScorer, score_trajectory_async
from openenv.rewards.external.conversation import (
    Message,
    as_messages,
    from_messages,
    last_text,
    message_text,
    split_prompt,
    task_of,
)
from openenv.rewards.external.fields import Fields
from openenv.rewards.external.scorers import make_score, scorer_name, to_number

INSTALL = "pip install 'openenv[inspect]'"

MODEL = "openenv/agent"
GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # as in `inspect_ai.scorer.value_to_float`
WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}

# Names of the task fields that may hold the right answer, in order of precedence.
TARGETS = ("target", "answer", "solution")


def target_of(trajectory: Trajectory[Any, Any]) -> str | list[str]:
    """Return the right answer: the task's ``target``, ``answer`` or ``solution``.

    Raises:
        Unscored: The task has none of these.
    """
    known = task_of(trajectory)
    for name in TARGETS:
        found = known.get(name)
        if isinstance(found, list):
            return [str(one) for one in found]
        if found is not None:
            return str(found)
    raise Unscored(f"the task has no target: expected one of {', '.join(TARGETS)} in its criteria")


def _library(needed_by: str) -> Any:
    with needs(needed_by, INSTALL):
        import inspect_ai  # pyright: ignore[reportMissingImports]
        import inspect_ai.model  # pyright: ignore[reportMissingImports]
        import inspect_ai.scorer  # pyright: ignore[reportMissingImports]
        import inspect_ai.solver  # pyright: ignore[reportMissingImports]
        import inspect_ai.tool  # pyright: ignore[reportMissingImports]
    return inspect_ai


class InspectScorer:
    """An Inspect scorer as a trajectory scorer, created by `from_inspect`."""

    def __init__(
        self,
        scorer: Any,
        target: Callable[[Trajectory[Any, Any]], str | Sequence[str]],
        combine: Callable[[Mapping[str, float]], float] | None,
        messages: Callable[[Trajectory[Any, Any]], list[Message]],
    ) -> None:
        self._library = _library("from_inspect")
        self.scorer = scorer
        self.name = scorer_name(scorer).partition(".<locals>")[0]  # of the function that made it
        self._target = target
        self._combine = combine
        self._messages = messages

    async def __call__(self, trajectory: Trajectory[Any, Any]) -> Score:
        """Score an episode.

        Raises:
            Unscored: Inspect did not score the episode, or returned several values and `combine` is
                not given.
        """
        target = self._library.scorer.Target(self._target(trajectory))
        state = _state(self._library, self._messages(trajectory), trajectory, target)
        given = await self.scorer(state, target)
        if given is None:
            return Score()
        return self._score(given)

    def _score(self, given: Any) -> Score:
        why = given.explanation or given.reason or "no reason is given"
        value = given.value
        if isinstance(value, Sequence) and not isinstance(value, str):
            value = {str(at): one for at, one in enumerate(value)}
        if not isinstance(value, Mapping):
            return make_score(self._finite(self.name, value, why))
        parts = {name: self._finite(name, one, why) for name, one in value.items()}
        if self._combine is None:
            raise Unscored(
                f"{self.name} gave several values ({', '.join(parts)}); say what the reward is: "
                "from_inspect(..., combine=...)"
            )
        return make_score(self._combine(parts))

    def _finite(self, name: str, value: Any, why: str) -> float:
        # Not `value_to_float` of Inspect, which turns unknown values into 0.
        known = GRADES.get(value, WORDS.get(value.lower())) if isinstance(value, str) else None
        if known is None:
            known = math.nan if value is None else to_number(name, value)
        if not math.isfinite(known):
            raise Unscored(f"{name} was not scored: {why}"[:500])
        return known


def from_inspect(
    scorer: Any,
    *,
    target: Callable[[Trajectory[Any, Any]], str | Sequence[str]] = target_of,
    combine: Callable[[Mapping[str, float]], float] | None = None,
    messages: Callable[[Trajectory[Any, Any]], list[Message]] = as_messages,
) -> InspectScorer:
    """Make a trajectory scorer from a scorer of Inspect AI.

        from inspect_ai.scorer import match

        scorer = from_inspect(match(numeric=True))

    The state holds the conversation, the agent's last message as the model's output, and the task's
    criteria and metadata. There is no sandbox: a scorer that needs a sandbox fails, and the episode
    is unscored.

    Args:
        scorer: The scorer, such as ``match()`` or ``model_graded_qa(model=...)``.
        target: Function that returns the right answer for an episode; by default `target_of`.
        combine: Function that turns several named values into one number. Required for a scorer
            that returns several values.
        messages: Function that converts an episode to a conversation.

    Raises:
        MissingPackage: Inspect AI is not installed.
    """
    return InspectScorer(scorer, target, combine, messages)


def _state(
    library: Any, messages: list[Message], trajectory: Trajectory[Any, Any], target: Any
) -> Any:
    prompt, completion = split_prompt(messages)
    known = task_of(trajectory)
    # A scorer that edits a message must not edit the input with it.
    given, chat = (
        [_to_message(library, message) for message in some]
        for some in (prompt, [*prompt, *completion])
    )
    return library.solver.TaskState(
        model=library.model.ModelName(MODEL),
        sample_id=str(known.get("id", 0)),
        epoch=1,
        input=given,
        messages=chat,
        target=target,
        output=library.model.ModelOutput.from_content(MODEL, last_text(completion)),
        completed=True,
        metadata=known,
    )


def _to_message(library: Any, message: Message) -> Any:
    model, role, text = library.model, message.get("role"), message_text(message)
    if role == "assistant":
        return model.ChatMessageAssistant(content=text, tool_calls=_calls(library, message))
    if role == "tool":
        call, name = message.get("tool_call_id"), message.get("name")
        return model.ChatMessageTool(content=text, tool_call_id=call, function=name)
    cls = model.ChatMessageSystem if role == "system" else model.ChatMessageUser
    return cls(content=text)


def _calls(library: Any, message: Message) -> list[Any] | None:
    made = []
    for call in message.get("tool_calls") or []:
        function = call.get("function") or {}
        id, name = str(call.get("id", "")), str(function.get("name", ""))
        arguments = function.get("arguments")
        try:
            found = read_json(arguments) if isinstance(arguments, str) else arguments
        except ValueError:
            found = None
        arguments = found if isinstance(found, dict) else {"arguments": arguments}
        made.append(library.tool.ToolCall(id=id, function=name, arguments=arguments))
    return made or None


# ------------------------------------------------------------------ the reverse direction


def to_inspect(
    scorer: TrajectoryScorer,
    *,
    name: str | None = None,
    metrics: Sequence[Any] | None = None,
    episode: Callable[..., Trajectory[Any, Any]] = from_messages,
) -> Any:
    """Make a scorer of Inspect AI from a trajectory scorer.

        task = Task(dataset=..., solver=generate(), scorer=to_inspect(scorer))

    The task of an episode has the sample's ``id``, its input as ``prompt``, its target as
    ``criteria.target``, and its metadata. An episode that cannot be scored is an unscored sample,
    which the metrics leave out, with the reason as its explanation.

    Args:
        scorer: The scorer; use `from_rubric` for a rubric.
        name: Name of the scorer in Inspect; by default the scorer's own name.
        metrics: Inspect's metrics; by default the mean and its standard error.
        episode: Function that builds an episode from a prompt, a completion and a keyword ``task``.

    Raises:
        MissingPackage: Inspect AI is not installed.
    """
    library = _library("to_inspect").scorer
    measured = [library.mean(), library.stderr()] if metrics is None else list(metrics)

    def made() -> Any:
        async def score(state: Any, target: Any) -> Any:
            found = await _score_sample(scorer, episode, state, target)
            if found.value is None:
                why = found.unscored or "the scorer had nothing to score"
                return library.Score.unscored(reason="scoring_failed", explanation=why)
            metadata = {"components": dict(found.components)} if found.components else None
            answer = state.output.completion
            return library.Score(value=found.value, answer=answer, metadata=metadata)

        return score

    own = scorer_name(scorer).rpartition(".")[2]  # made an identifier, which Inspect can register
    name = name or re.sub(r"\W+", "_", own).strip("_") or "openenv"
    return library.scorer(metrics=measured, name=name)(made)()


async def _score_sample(
    scorer: TrajectoryScorer, episode: Callable[..., Trajectory[Any, Any]], state: Any, target: Any
) -> Score:
    messages = [_plain(one) for one in state.messages]
    prompt, completion = split_prompt(messages)
    wanted = target.text if len(target) == 1 else list(target)
    given = state.input if isinstance(state.input, str) else [_plain(one) for one in state.input]
    task = Fields(
        id=str(state.sample_id),
        prompt=given,
        criteria=Fields(target=wanted),
        metadata=Fields(state.metadata or {}),
    )
    try:
        trajectory = episode(prompt, completion or state.output.completion, task=task)
    except Unscored as error:
        return Score(unscored=str(error))
    return await score_trajectory_async(scorer, trajectory)


def _plain(message: Any) -> Message:
    plain: Message = {"role": message.role, "content": message.text}
    if message.role == "tool":
        plain |= {"tool_call_id": message.tool_call_id, "name": message.function}
    if message.role == "assistant" and message.tool_calls:
        plain["tool_calls"] = [
            {
                "id": one.id,
                "type": "function",
                "function": {"name": one.function, "arguments": json.dumps(one.arguments)},
            }
            for one in message.tool_calls
        ]
    return plain
