"""Loops of harness rollouts: our loop, which samples each turn, or the loop of a program."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from openenv.errors import InvalidActionError, ServerError, refusal
from openenv.rewards.llm.client import LLMResponse, ToolCall
from openenv.rollouts.harness.bridge import SessionMCPBridge
from openenv.rollouts.harness.results import (
    HarnessRolloutResult,
    HarnessRunLimits,
    Message,
    ModelStep,
    ModelStepResult,
    RolloutEvent,
    ToolResult,
    ToolTraceEntry,
)
from openenv.rollouts.harness.sessions import ResourceSession, ToolCallRejected, UnknownSessionTool

Runner = Callable[[SessionMCPBridge, ResourceSession, HarnessRunLimits], HarnessRolloutResult]

# Mistakes of the model that are found before the environment is called.
_MISTAKES = (UnknownSessionTool, ToolCallRejected, InvalidActionError)


class HarnessAdapter(ABC):
    """Plays rollouts in sessions."""

    @abstractmethod
    def run_white_box(
        self,
        model_step: ModelStep,
        session: ResourceSession,
        limits: HarnessRunLimits | None = None,
    ) -> HarnessRolloutResult:
        """Play a rollout whose turns are sampled by `model_step`.

        Raises:
            NotImplementedError: The harness samples its turns itself.
        """

    @abstractmethod
    def run_black_box(
        self, session: ResourceSession, limits: HarnessRunLimits | None = None
    ) -> HarnessRolloutResult:
        """Play a rollout with a harness that samples the turns.

        Raises:
            NotImplementedError: The harness needs a model step.
        """


class MCPHarnessAdapter(HarnessAdapter):
    """The plain loop: sample a turn, call the tools, show the model the results.

    The loop ends when the model calls no tool, when a tool reports the end of the episode, or at a
    limit. Every call in the conversation is answered, even if it was not carried out. A mistake of
    the model (an unknown tool, arguments that make no action, an action that the environment
    refuses) is shown to the model as the call's result. A failure of the environment is raised.
    """

    def run_white_box(
        self,
        model_step: ModelStep,
        session: ResourceSession,
        limits: HarnessRunLimits | None = None,
    ) -> HarnessRolloutResult:
        return _Loop(model_step, session, limits or HarnessRunLimits()).run()

    def run_black_box(
        self, session: ResourceSession, limits: HarnessRunLimits | None = None
    ) -> HarnessRolloutResult:
        """Raise an error: this harness needs a model step.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            "MCPHarnessAdapter samples turns by a model step: use run_white_box, or "
            "CLIHarnessAdapter for a program that runs its own loop"
        )


class CLIHarnessAdapter(HarnessAdapter):
    """A program that runs the loop.

    Args:
        runner: Runs the program; called with a bridge to the session's tools, the session and the
            limits. Returns the rollout.
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def run_white_box(
        self,
        model_step: ModelStep,
        session: ResourceSession,
        limits: HarnessRunLimits | None = None,
    ) -> HarnessRolloutResult:
        """Raise an error: the program samples the turns.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            "CLIHarnessAdapter starts a program that samples its own turns: use run_black_box, or "
            "MCPHarnessAdapter for a model step of yours"
        )

    def run_black_box(
        self, session: ResourceSession, limits: HarnessRunLimits | None = None
    ) -> HarnessRolloutResult:
        return self.runner(SessionMCPBridge(session), session, limits or HarnessRunLimits())


@dataclass
class _Loop:
    model_step: ModelStep
    session: ResourceSession
    limits: HarnessRunLimits
    turns: list[ModelStepResult] = field(default_factory=list)
    calls: int = 0

    def run(self) -> HarnessRolloutResult:
        self.result = HarnessRolloutResult(messages=list(self.session.initial_messages()))
        self.tools = self.session.list_tools()
        going_on = True
        while going_on and len(self.turns) < self.limits.max_turns:
            going_on = self.turn()
        self.result.metrics |= {"turns": len(self.turns), "tool_calls": self.calls}
        self.result.join(self.turns)
        return self.result

    def turn(self) -> bool:
        """Sample a turn and carry out the calls; return whether another turn follows."""
        result = self.result
        sampling = dict(self.limits.sampling)
        sampled = self.model_step(result.messages, self.tools, sampling)
        reply = sampled.response
        told = [{"id": one.id, "name": one.name, "arguments": one.args} for one in reply.tool_calls]
        payload = {"turn": len(self.turns), "content": reply.content, "tool_calls": told}
        result.events.append(RolloutEvent("model_response", payload))
        result.messages.append(_spoken(reply))
        self.turns.append(sampled)
        if not reply.tool_calls:
            result.done = True
            return False
        most, total = self.limits.max_tool_calls_per_turn, self.limits.max_total_tool_calls
        for number, call in enumerate(reply.tool_calls):
            if result.done:
                self.skip(call, "the episode is over")
            elif total is not None and self.calls >= total:
                self.skip(call, f"there may be {total} calls in all")
                result.metrics["truncated"] = True
            elif most is not None and number >= most:
                self.skip(call, f"there may be {most} calls in a turn")
            else:
                self.carry_out(call)
        return not result.done and not result.metrics.get("truncated")

    def carry_out(self, call: ToolCall) -> None:
        try:
            answer = self.session.call_tool(call.name, call.args)
        except _MISTAKES as mistake:
            answer = ToolResult(error=str(mistake))
        except ServerError as error:
            if (refused := refusal(error)) is None:
                raise
            answer = ToolResult(error=refused)
        self.calls += 1
        self.result.done = answer.done
        self.result.tool_trace.append(ToolTraceEntry(call.name, dict(call.args), answer))
        payload = {"tool_name": call.name, "arguments": dict(call.args), "done": answer.done}
        self.result.events.append(RolloutEvent("tool_call", payload))
        self.result.messages.append(_answered(call, answer))

    def skip(self, call: ToolCall, why: str) -> None:
        """Answer a call with the reason why it was not made, since it stays in the conversation."""
        payload = {"tool_name": call.name, "arguments": dict(call.args), "reason": why}
        self.result.events.append(RolloutEvent("tool_call_skipped", payload))
        answer = ToolResult(error=f"not carried out: {why}")
        self.result.messages.append(_answered(call, answer))


def _spoken(reply: LLMResponse) -> Message:
    message = reply.to_message_dict()
    for call, told in zip(reply.tool_calls, message.get("tool_calls", ()), strict=True):
        told["function"]["arguments"] = json.dumps(call.args, ensure_ascii=False)
    return message


def _answered(call: ToolCall, answer: ToolResult) -> Message:
    told = {"role": "tool", "tool_call_id": call.id, "name": call.name}
    return {**told, "content": answer.text}
