"""A policy that is a person at a terminal."""

from __future__ import annotations

import asyncio
import os
import select
import sys
from collections.abc import Callable
from typing import Any

from openenv._internal.json import read_json
from openenv._internal.quoting import printable
from openenv.rollouts.interfaces import AgentTool, Interface, resolve_reference
from openenv.rollouts.policies.base import (
    Decision,
    EpisodeOpening,
    InvalidReply,
    PolicyPlayer,
    PolicyStopped,
    PolicyTurn,
)
from openenv.rollouts.policies.views import view

LEAVE = "that is all; the run ends here"
LOOK_EVERY_S = 0.2  # how often to check whether a line is still wanted


class HumanPolicy:
    """A person who is asked for each action, field by field. The end of input ends the run.

    Args:
        ask: Shows a question and returns a line. Default: like `input`, but on stderr.
        tell: Shows text. Default: on stderr.
    """

    name = "human"
    needs_interface = True
    wants_refusals = True
    max_concurrency = 1

    def __init__(
        self, ask: Callable[[str], str] | None = None, tell: Callable[[str], None] | None = None
    ) -> None:
        self._lines = _TerminalLines()
        self._ask = ask or self._lines.ask
        self._tell = tell or _tell

    def begin(self, opening: EpisodeOpening) -> PolicyPlayer:
        assert opening.interface is not None
        self._lines.is_left = False
        self._tell(f"\n--- {opening.rollout_id} ---")
        said = (opening.task or {}).get("prompt")
        if said and isinstance(said, str):
            self._tell(said)
        return _TerminalPlayer(opening.interface, self._ask, self._tell)

    async def aclose(self) -> None:
        self._lines.is_left = True


class _TerminalLines:
    """Lines of standard input, read so that reading stops when the policy is closed."""

    def __init__(self) -> None:
        self.is_left = False

    def ask(self, question: str) -> str:
        sys.stderr.write(printable(question))
        sys.stderr.flush()
        line = self._read()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def _read(self) -> str:
        try:
            file = sys.stdin.fileno()
        except (OSError, ValueError):  # standard input is not a file
            return sys.stdin.readline()
        line = b""
        while not line.endswith(b"\n"):
            if self.is_left:
                return ""
            if select.select([file], [], [], LOOK_EVERY_S)[0]:
                byte = os.read(file, 1)  # `select` does not see what a buffer holds
                if not byte:
                    break
                line += byte
        return line.decode(errors="replace")


def _tell(text: str) -> None:
    sys.stderr.write(f"{printable(text)}\n")  # the text may come from the environment


class _TerminalPlayer:
    def __init__(
        self, interface: Interface, ask: Callable[[str], str], tell: Callable[[str], None]
    ) -> None:
        self._interface = interface
        self._ask = ask
        self._tell = tell

    async def act(self, turn: PolicyTurn) -> Decision:
        if turn.refusal is not None:
            self._tell(f"not taken: {turn.refusal}")
        else:
            reward = getattr(turn.result, "reward", None)
            self._tell(view(turn.observation, self._interface.visible))
            if reward is not None:
                self._tell(f"(reward {reward:g})")
        try:
            return await asyncio.to_thread(self._asked)
        except EOFError:
            raise PolicyStopped(LEAVE, ends_run=True) from None

    def _asked(self) -> Decision:
        tool = self._chosen()
        schema = tool.input_schema
        arguments = {}
        for name, field in schema.get("properties", {}).items():
            is_required = name in schema.get("required", ())
            answer = self._ask(_question(name, resolve_reference(field, schema), is_required))
            if answer or is_required:
                arguments[name] = _read(answer, resolve_reference(field, schema))
        return Decision(tool.action(arguments))

    def _chosen(self) -> AgentTool:
        tools = self._interface.tools
        if len(tools) == 1:
            return tools[0]
        names = ", ".join(f"{number} {tool.name}" for number, tool in enumerate(tools, 1))
        answer = self._ask(f"what to do ({names}): ").strip()
        if answer.isdigit() and 0 < int(answer) <= len(tools):
            return tools[int(answer) - 1]
        found = self._interface.tool(answer)
        if found is None:
            raise InvalidReply(f"there is no {answer!r}; type a number, or a name")
        return found


def _question(name: str, field: dict[str, Any], is_required: bool) -> str:
    words = [str(field["description"])] if field.get("description") else []
    if "enum" in field:
        words.append("one of " + ", ".join(map(str, field["enum"])))
    elif isinstance(field.get("type"), str) and field["type"] != "string":
        words.append(field["type"])
    if not is_required:
        words.append("may be left empty")
    return f"{name} ({'; '.join(words)}): " if words else f"{name}: "


def _read(answer: str, field: dict[str, Any]) -> Any:
    if field.get("type") == "string":
        return answer
    if "enum" in field:
        return next((one for one in field["enum"] if str(one) == answer), answer)
    try:
        return read_json(answer)
    except ValueError:
        return answer  # the environment reports what is wrong
