"""Actions, observations and state of the coding environment."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from openenv.types import Action, Observation, State

__all__ = ["CodeAction", "CodeObservation", "CodeState"]


class CodeAction(Action):
    """Python code to run, or to submit as the answer to the task."""

    code: str = Field(description="Python code. The value of a last expression is printed.")
    submit: bool = Field(
        default=False,
        description="Submit the code as the whole answer to the task: score it, end the episode.",
    )


class CodeObservation(Observation):
    """The output of the code.

    `metadata` has `timed_out`, `left_out` (the bytes that are missing from the middle of a stream)
    and `names_are_gone` (the interpreter had to be restarted), each only if it applies.
    """

    stdout: str = Field(default="", description="The standard output.")
    stderr: str = Field(
        default="", description="The standard error output, with the traceback of an exception."
    )
    exit_code: int = Field(
        default=0,
        description="0; 1 after an exception; the argument of exit; 124 after a timeout.",
    )
    prompt: str | None = Field(default=None, description="The task, after a reset with a task.")

    @model_serializer(mode="wrap")
    def _omit_missing_prompt(self, serialize: SerializerFunctionWrapHandler) -> Any:
        """Omit a prompt of None, because older clients do not know the field."""
        fields = serialize(self)
        if isinstance(fields, dict) and fields.get("prompt") is None:
            fields.pop("prompt", None)
        return fields


class CodeState(State):
    """The state of the episode."""

    last_exit_code: int = Field(default=0, description="The exit code of the latest step.")
    engine: str = Field(default="", description="The engine: sandbox or smolagents.")
    sandbox: str | None = Field(
        default=None, description="The kind of sandbox: gvisor, bubblewrap or landlock."
    )
    guarantee: str | None = Field(
        default=None, description="The guarantee of the sandbox: process, namespaces or kernel."
    )
    task_id: str | None = Field(default=None, description="The id of the running task.")
