"""What agents are shown: observations as text, without what is the trainer's, and tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from openenv.mcp.results import is_dump, text_in
from openenv.types import public_view

__all__ = ["instructions", "not_shown", "view", "visible_fields"]

TRAINERS = frozenset({"reward", "done", "truncated", "metadata"})


def visible_fields(observation: Any, visible: frozenset[str] | None) -> dict[str, Any]:
    """The fields of an observation that its agent may see.

    Args:
        observation: A model, whose private fields are left out; or a mapping.
        visible: The fields of a mapping that are public, as the environment's tools declare them;
            None where nobody says.
    """
    if isinstance(observation, BaseModel):
        hidden = TRAINERS & type(observation).model_fields.keys()
        return public_view(observation, hidden)
    if isinstance(observation, Mapping):
        return {
            name: value
            for name, value in observation.items()
            if name not in TRAINERS and (visible is None or name in visible)
        }
    return {"observation": observation}


def view(
    observation: Any,
    visible: frozenset[str] | None = None,
    shows: Sequence[str] | None = None,
) -> str:
    """An observation as its agent reads it: its text, where that is all; else JSON.

    Args:
        observation: A model or a mapping.
        visible: The fields of a mapping that are public; see `visible_fields`.
        shows: Those of them that the agent is shown, in this order; None is all.

    Raises:
        ValueError: The observation has none of the fields that are to be shown.
    """
    fields = visible_fields(observation, visible)
    if shows is not None:
        chosen = {name: fields[name] for name in shows if name in fields}
        if not chosen:
            raise not_shown(shows, fields)
        fields = chosen
    if "tool_name" in fields and fields.keys() & {"result", "error"}:
        return _of_call(fields)
    shown = {name: value for name, value in fields.items() if value is not None}
    if len(shown) == 1:
        (only,) = shown.values()
        if isinstance(only, str):
            return only
    return json.dumps(to_jsonable_python(shown, fallback=repr), ensure_ascii=False)


def not_shown(shows: Iterable[str], known: Iterable[str]) -> ValueError:
    """The error of showing fields that observations do not have."""
    return ValueError(f"shows={list(shows)}; expected one or more of {sorted(known)}")


def _of_call(fields: Mapping[str, Any]) -> str:
    error, result = fields.get("error"), fields.get("result")
    if error:
        said = error.get("message") if isinstance(error, Mapping) else error
        return f"Error: {said}"
    if is_dump(result):
        return str(text_in(result))
    if isinstance(result, str):
        return result
    return json.dumps(to_jsonable_python(result, fallback=repr), ensure_ascii=False)


def instructions(task: Mapping[str, Any]) -> str:
    """The text of a task's prompt; empty where it has none, or where it is a conversation."""
    prompt = task.get("prompt")
    return prompt if isinstance(prompt, str) else ""
