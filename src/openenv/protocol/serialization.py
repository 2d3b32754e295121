"""Actions and observations as dictionaries, for code that builds its own messages.

The server itself uses other functions: it validates with `EnvironmentSpec.decode_action` and writes
straight to JSON with `observation_payload`.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from typing import Any

from openenv._internal.json import read_json
from openenv._internal.models import reader_of
from openenv.protocol.messages import TRUNCATED
from openenv.protocol.values import outer_fields
from openenv.tools.types import select_action_model
from openenv.types import Action, Observation


def deserialize_action(data: Mapping[str, Any], action_cls: type[Action]) -> Action:
    """Validate the fields of an action, which may be a tool action if `action_cls` allows it.

    Raises:
        ValidationError: The fields do not fit the model.
    """
    action: Action = reader_of(select_action_model(action_cls, data)).read(data)
    return action


def deserialize_action_with_preprocessing(
    data: Mapping[str, Any], action_cls: type[Action]
) -> Action:
    """Validate the fields of an action that a person typed into a form.

    A tool's `arguments` may be JSON text. `tokens` may be JSON text, and become a tensor if torch
    is installed. `action_id` may be a number written as text.

    Raises:
        ValidationError: The fields do not fit the model.
    """
    fields = dict(data)
    if fields.get("type") == "call_tool" and isinstance(fields.get("arguments"), str):
        fields["arguments"] = _read_json(fields["arguments"], otherwise=fields["arguments"])
    if isinstance(fields.get("action_id"), str):
        with contextlib.suppress(ValueError):
            fields["action_id"] = int(fields["action_id"])
    if isinstance(fields.get("tokens"), str):
        fields["tokens"] = _read_json(fields["tokens"], otherwise=[])
    if isinstance(fields.get("tokens"), list):
        try:
            torch = importlib.import_module("torch")
        except ImportError:
            pass
        else:
            fields["tokens"] = torch.tensor(fields["tokens"], dtype=torch.long)
    return deserialize_action(fields, action_cls)


def _read_json(text: str, otherwise: Any) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return otherwise


def serialize_observation(observation: Observation) -> dict[str, Any]:
    """Write an observation as ``{"observation", "reward", "done"[, "metadata"]}``.

    The values stay Python values. A truncation is reported in ``metadata``, as over the wire.
    """
    fields = observation.model_dump(exclude=outer_fields(type(observation)))
    metadata = dict(observation.metadata)
    if observation.truncated:
        metadata[TRUNCATED] = True
        fields["metadata"] = metadata
    payload = {"observation": fields, "reward": observation.reward, "done": observation.done}
    return {**payload, "metadata": metadata} if metadata else payload
