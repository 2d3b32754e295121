"""Rollouts for ART (openpipe-art 0.5) in any environment.

groups = await art.gather_trajectory_groups(
    (
        art.TrajectoryGroup(rollout(model, "blackjack", reset={"seed": seed}) for _ in range(8))
        for seed in range(16)
    ),
    max_exceptions=0.1,
)
await backend.train(model, groups)
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from openenv._internal.json import read_json
from openenv._internal.packages import needs
from openenv.integrations._episodes import run_on_shared_loop, session_in, session_reward
from openenv.rollouts.episode_sessions import (
    ActionOutcome,
    EpisodeSession,
    EpisodeStart,
    Unfinished,
)
from openenv.rollouts.jobs import as_task
from openenv.rollouts.policies.conversations import opening_messages
from openenv.rollouts.replies import ParsedCall, ParsedReply, describe_tools, read_reply

with needs("openenv.integrations.art", "pip install openpipe-art"):
    import art  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]

__all__ = ["rollout"]


async def rollout(
    model: Any,
    environment: Hashable,
    *,
    task: Any = None,
    prompt: str | Sequence[Mapping[str, Any]] = (),
    reset: Mapping[str, Any] | None = None,
    acts: Literal["tools", "words"] = "tools",
    max_turns: int = 32,
    unfinished: Unfinished = "earned",
    retries: int = 2,
    request: Mapping[str, Any] | None = None,
    equal_beginnings: bool = True,
) -> art.Trajectory:
    """Play an episode.

    Failures raise an exception, and so do episodes without a reward. ART keeps it as an exception
    of its group, leaves the rollout out of training, and allows up to ``max_exceptions`` of them.

    Args:
        model: An ART model, or any object with `openai_client` and `get_inference_name`.
        environment: An address, the name of an installed environment, another target of ``openenv
            serve``, an environment class, or an `EnvPool`. Each rollout has its own session.
        task: The task: an `openenv.Task`, or a value that it can be created from.
        prompt: A system prompt, or messages, that come before the task's prompt and the first
            observation.
        reset: Arguments of the environment's reset; they take precedence over the task's.
        acts: How the model acts: by calling ``tools``; or by ``words``, where each reply is an
            action, as JSON or, if the action is a single text, as that text. With ``tools``, a
            reply without a tool call is read as words.
        max_turns: Maximum number of replies.
        unfinished: Reward of an episode that the model has not finished by then.
        retries: Further attempts at a reset after a passing failure.
        request: Further arguments of the chat completions, such as ``max_completion_tokens``.
        equal_beginnings: Raise `UnequalBeginnings` if an episode begins differently from an earlier
            one with the same seed and arguments: their rewards cannot be compared.

    Returns:
        A trajectory whose choices are the model's replies. Its metrics are the reward's components,
        ``steps``, and whether the episode was ``finished``. Its metadata are the reset arguments
        that are integers or texts.

    Raises:
        CapacityError: The server has no slot for the episode.
        OpenEnvError: The environment could not be reached, or has failed.
        Unscored: The episode has no reward.
    """
    said = [{"role": "system", "content": prompt}] if isinstance(prompt, str) else prompt
    start = EpisodeStart.of_task(None if task is None else as_task(task, 1), messages=said)
    start = replace(start, arguments={**start.arguments, **(reset or {})})
    async with session_in(environment, retries, equal_beginnings) as session:
        first = await run_on_shared_loop(session.begin(start))
        words = describe_tools(session.interface) if acts == "words" else ""
        tools = [tool.as_function() for tool in session.interface.tools]
        trajectory = art.Trajectory(
            messages_and_choices=opening_messages(start.messages, first, words),
            tools=tools if acts == "tools" else None,
            metadata={
                name: one for name, one in start.arguments.items() if isinstance(one, int | str)
            },
        )
        asked = {"model": model.get_inference_name(), **(request or {})}
        if trajectory.tools:
            asked["tools"] = trajectory.tools
        for _ in range(max_turns):
            if session.is_over:
                break
            done = await model.openai_client().chat.completions.create(
                messages=trajectory.messages(), **asked
            )
            trajectory.messages_and_choices.append(done.choices[0])
            trajectory.messages_and_choices += await _answers(session, done.choices[0])
        score = session_reward(session, unfinished)
        trajectory.reward = score.value
        trajectory.metrics |= {
            **score.components,
            "steps": session.steps,
            "finished": session.is_over,
        }
    return trajectory.finish()


async def _answers(session: EpisodeSession, choice: Any) -> list[dict[str, Any]]:
    """Carry out a reply of the model; return the messages that answer it."""
    message, is_cut = choice.message, choice.finish_reason == "length"
    if not message.tool_calls or is_cut:
        reply = read_reply(message.content or "", session.interface, is_cut=is_cut)
    else:
        reply = _called(message.tool_calls)
    answer: ActionOutcome = await run_on_shared_loop(session.act_by(reply))
    ids = [call.id for call in message.tool_calls or ()]
    if not ids:
        return [{"role": "user", "content": answer.text}]
    texts = [*answer.texts, *[answer.text] * (len(ids) - len(answer.texts))]
    return [
        {"role": "tool", "tool_call_id": id, "content": text}
        for id, text in zip(ids, texts, strict=True)
    ]


def _called(tool_calls: Sequence[Any]) -> ParsedReply:
    calls: list[ParsedCall] = []
    for one in tool_calls:
        try:
            arguments = read_json(one.function.arguments or "{}")
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            return ParsedReply("", "", calls, "the arguments are no JSON object")
        calls.append(ParsedCall(one.id, one.function.name, arguments))
    return ParsedReply("", "", calls)
