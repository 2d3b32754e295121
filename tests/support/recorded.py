"""What the public package was recorded to answer, and where we answer otherwise on purpose."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

Exchange = dict[str, Any]

PEER = json.loads((Path(__file__).parents[1] / "data" / "peer_0_10_0.json").read_text())
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_same(*packages: str) -> bool:
    """These are the versions that were recorded, but for fixes."""
    return all(version(p).split(".")[:2] == PEER["versions"][p].split(".")[:2] for p in packages)


@dataclass(frozen=True)
class Deviation:
    """Exchanges that we answer in another way on purpose.

    Attributes:
        why: What is better about it.
        concerns: Picks the exchanges by what was recorded.
        holds: Takes our status, our answer and the recorded exchange.
    """

    why: str
    concerns: Callable[[Exchange], bool]
    holds: Callable[[int, Any, Exchange], bool]


def _sends(text: str) -> Callable[[Exchange], bool]:
    return lambda exchange: text in (exchange["body"] or "")


def _answers(text: str) -> Callable[[Exchange], bool]:
    return lambda exchange: text in exchange["answer"]


def result_in(answer: Any) -> Any:
    """The JSON-RPC result, or error, of an answer, whatever is around it."""
    answer = answer["data"] if answer.get("type") == "mcp" else answer
    return answer.get("error", answer.get("result"))


# What concerns tools, over whichever transport.
TOOLS = {
    "a tool's name that is none": Deviation(
        "it is the caller's mistake, and is named as such",
        _sends('"name":5'),
        lambda status, answer, _: (
            result_in(answer)["code"] == -32602
            and result_in(answer)["message"] == "'name' must be a string; got 5"
        ),
    ),
    "what an environment raised": Deviation(
        "what was not meant for the caller stays in the log, under an id that the caller is told",
        _answers("no tool nope"),
        lambda status, answer, _: (
            "RuntimeError in step; incident" in json.dumps(answer)
            and ("EXECUTION_ERROR" in json.dumps(answer) or result_in(answer)["code"] == -32603)
        ),
    ),
}


def comparable(text: str) -> str:
    """An answer without what depends on the version of FastMCP: since 4, tools have titles."""
    if is_same("fastmcp"):
        return text
    return re.sub(r'("title": ?)"[^"]*"', r"\1null", text)
