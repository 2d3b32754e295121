"""Observations as agents see them: text and pictures, without fields that only trainers see."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from openenv.errors import NotSupported
from openenv.tools.results import extract_text, is_dump, to_block
from openenv.types import public_view

# Beginnings of PNG, JPEG and GIF in base64: clients without models receive pictures as text.
ENCODED = ("iVBORw0KGgo", "/9j/", "R0lGOD")
SHORTEST_ENCODED = 64
TRAINERS = frozenset({"reward", "done", "truncated", "metadata"})


def visible_fields(observation: Any, visible: frozenset[str] | None) -> dict[str, Any]:
    """Return the fields of an observation that the agent may see.

    Args:
        observation: A model, whose private fields are left out, or a mapping.
        visible: The public fields of a mapping, as the environment's tools declare them; None if
            unknown.
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


@dataclass(frozen=True)
class ObservationView:
    """An observation as the agent sees it.

    Attributes:
        text: The text; a picture appears as a name in brackets.
        pictures: The pictures, in order, as MCP content blocks: ``data`` is the file in base64,
            ``mimeType`` its type.
    """

    text: str
    pictures: tuple[dict[str, Any], ...] = ()


def view(
    observation: Any,
    visible: frozenset[str] | None = None,
    shows: Sequence[str] | None = None,
) -> str:
    """Return an observation as text; see `look_at` for the arguments.

    Raises:
        NotSupported: The observation has a picture, which text cannot show.
        ValueError: The observation has none of the fields in `shows`.
    """
    seen = look_at(observation, visible, shows)
    if seen.pictures:
        raise NotSupported(
            "the environment shows a picture, and the model is told in text only. Name the fields "
            "that it is shown: shows=[...], without the picture; or use what passes pictures on: "
            "an LLM policy, or environment_factory of TRL with a model that sees",
            feature="pictures",
        )
    return seen.text


def look_at(
    observation: Any,
    visible: frozenset[str] | None = None,
    shows: Sequence[str] | None = None,
) -> ObservationView:
    """Return an observation as an agent sees it: a single text unchanged, else JSON; and pictures.

    Arrays of pixels (uint8, at least 8 along each side), the bytes of image files, and base64 of
    these are pictures.

    Args:
        observation: A model or a mapping.
        visible: The public fields of a mapping; see `visible_fields`.
        shows: The fields that the agent is shown, in this order; None for all.

    Raises:
        ValueError: The observation has none of the fields in `shows`.
    """
    fields = visible_fields(observation, visible)
    if shows is not None:
        chosen = {name: fields[name] for name in shows if name in fields}
        if not chosen:
            raise unknown_fields_error(shows, fields)
        fields = chosen
    if "tool_name" in fields and fields.keys() & {"result", "error"}:
        return _of_call(fields)
    shown: dict[str, Any] = {}
    pictures: list[dict[str, Any]] = []
    for name, value in fields.items():
        picture = _picture_of(value)
        if picture is not None:
            pictures.append(picture)
            shown[name] = f"[picture {len(pictures)}]"
        elif value is not None:
            shown[name] = value
    if len(shown) == 1:
        (only,) = shown.values()
        if isinstance(only, str):
            return ObservationView(only, tuple(pictures))
    return ObservationView(_as_json(shown), tuple(pictures))


def _picture_of(value: Any) -> dict[str, Any] | None:
    """Return the content block of a picture; None for other values."""
    if isinstance(value, str):
        if len(value) < SHORTEST_ENCODED or not value.startswith(ENCODED):
            return None
        try:
            value = base64.b64decode(value, validate=True)
        except binascii.Error:
            return None
    block = to_block(value)
    return block if block is not None and block["type"] == "image" else None


def _as_json(value: Any) -> str:
    def plain(value: Any) -> Any:  # arrays as lists, since their `repr` is abridged
        return value.tolist() if hasattr(value, "tolist") else repr(value)

    found = to_jsonable_python(value, bytes_mode="base64", fallback=plain)
    return json.dumps(found, ensure_ascii=False)


def unknown_fields_error(shows: Iterable[str], known: Iterable[str]) -> ValueError:
    """Return the error for `shows` that names unknown fields."""
    return ValueError(f"shows={list(shows)}; expected one or more of {sorted(known)}")


def _of_call(fields: Mapping[str, Any]) -> ObservationView:
    error, result = fields.get("error"), fields.get("result")
    if error:
        said = error.get("message") if isinstance(error, Mapping) else error
        return ObservationView(f"Error: {said}")
    if is_dump(result):
        blocks = [block for block in result["content"] if block.get("type") == "image"]
        named = [f"[picture {number}]" for number, _ in enumerate(blocks, 1)]
        pictures = [{key: one[key] for key in ("type", "data", "mimeType")} for one in blocks]
        text = "\n".join(part for part in (extract_text(result), *named) if part)
        return ObservationView(text, tuple(pictures))
    return ObservationView(result if isinstance(result, str) else _as_json(result))
