"""A smolagents agent as a program that reads messages and writes events, one per line.

`openenv.agents.StdioHarnessAdapter` runs the program. The agent keeps its memory over the turns of
an episode. It needs ``pip install 'smolagents[openai,mcp]' 'mcp<2'``, but not OpenEnv.

    OPENENV_MCP_URL         address of the environment's tools
    OPENENV_HARNESS_MODEL   name of the model
    OPENAI_BASE_URL         address of the model's API
    OPENAI_API_KEY          key of the model's API
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent, ToolCollection
from smolagents.memory import ActionStep

OUT = sys.stdout
sys.stdout = sys.stderr  # keep the output of libraries apart from events


def write(kind: str, **data: Any) -> None:
    """Write an event."""
    OUT.write(json.dumps({"type": kind, "data": data}, default=str) + "\n")
    OUT.flush()


def tell(step: ActionStep, agent: Any = None) -> None:
    """Write the events of an agent's step."""
    for call in step.tool_calls or ():
        write("tool_call", name=call.name, arguments=call.arguments, id=call.id)
    if step.observations:
        write("tool_result", result=step.observations)
    if step.error is not None:
        write("error", message=str(step.error), recoverable=True)


def take_turn(agent: ToolCallingAgent, message: str) -> None:
    """Let the agent answer a message."""
    try:
        answer = agent.run(message, reset=False)
    except Exception as error:
        write("error", message=f"{type(error).__name__}: {error}", recoverable=False)
    else:
        write("turn_complete", response=str(answer))


@contextlib.contextmanager
def tools() -> Iterator[list[Any]]:
    """Connect to the environment's tools."""
    url = os.environ.get("OPENENV_MCP_URL")
    if not url:
        yield []
        return
    served = {"url": url, "transport": "streamable-http"}
    with ToolCollection.from_mcp(served, trust_remote_code=True, structured_output=False) as found:
        yield list(found.tools)


def main() -> None:
    """Answer messages until the input ends."""
    model = OpenAIServerModel(
        os.environ["OPENENV_HARNESS_MODEL"],
        api_base=os.environ.get("OPENAI_BASE_URL"),
        api_key=os.environ["OPENAI_API_KEY"],
    )
    with tools() as found:
        agent = ToolCallingAgent(
            tools=found,
            model=model,
            max_steps=8,
            step_callbacks=[tell],
            verbosity_level=LogLevel.OFF,
        )
        write("text_output", text="ready")
        for line in sys.stdin:
            take_turn(agent, json.loads(line)["content"])


if __name__ == "__main__":
    main()
