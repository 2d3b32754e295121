"""What crosses the wire between the coding environment and its client."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from openenv.types import Action, Observation, State

__all__ = ["CodeAction", "CodeObservation", "CodeState"]


class CodeAction(Action):
    """A piece of Python."""

    code: str = Field(description="Python. The value of a last expression is printed.")
    submit: bool = Field(
        default=False,
        description="The code is the whole answer to the task: it is scored, and the episode ends.",
    )


class CodeObservation(Observation):
    """What the code came to.

    `metadata` has `seconds` that it took, `timed_out`, `left_out` (bytes of a stream that are
    missing from the middle), and `names_are_gone` where the interpreter had to be started anew.
    """

    stdout: str = Field(default="", description="What it printed.")
    stderr: str = Field(default="", description="Likewise; the traceback of an exception.")
    exit_code: int = Field(
        default=0,
        description="0; 1 after an exception; what was given to exit; 124 where it took too long.",
    )
    prompt: str | None = Field(default=None, description="The task; only where there is one.")

    @model_serializer(mode="wrap")
    def _without_an_absent_prompt(self, serialize: SerializerFunctionWrapHandler) -> Any:
        """Leave the prompt out where there is none: older clients know no such field."""
        fields = serialize(self)
        if isinstance(fields, dict) and fields.get("prompt") is None:
            fields.pop("prompt", None)
        return fields


class CodeState(State):
    """Where the episode stands."""

    last_exit_code: int = Field(default=0, description="Of the latest step.")
    engine: str = Field(default="", description="What runs the code: sandbox or smolagents.")
    sandbox: str | None = Field(
        default=None, description="The kind of sandbox: gvisor, bubblewrap or landlock."
    )
    guarantee: str | None = Field(
        default=None, description="What stands between the code and the machine."
    )
    task_id: str | None = Field(default=None, description="The running task.")
