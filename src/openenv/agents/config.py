"""The configuration of an agent harness."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from openenv.agents.errors import HarnessStartupError
from openenv.settings import secrets_of, without_keys

__all__ = ["HarnessConfig", "HarnessTransport", "build_environment"]

MEBIBYTE = 2**20
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class HarnessTransport(str, Enum):
    """The transport of messages to a harness.

    `STDIO` is its standard input and output, `STREAMABLE_HTTP` an HTTP server that it runs, `MCP`
    an MCP server on its standard input and output.
    """

    STDIO = "stdio"
    STREAMABLE_HTTP = "http"
    MCP = "mcp"


class HarnessConfig(BaseModel):
    """The command, environment and limits of an agent harness.

    Attributes:
        name: The harness's name in messages.
        command: The program and its arguments; no shell is involved.
        working_directory: The working directory, which must exist.
        env_vars: Environment variables in addition to the server's.
        transport: The transport of messages.
        mcp_config_path: The file in which the harness looks for MCP servers: an absolute path, or
            one relative to `working_directory`. The environment's tools are written there as
            ``{"mcpServers": {"openenv": {"type": "http", "url": ...}}}``.
        startup_timeout_s: Time limit for starting, in seconds.
        session_timeout_s: Time limit of a turn, in seconds.
        model: The model to use. Fills the placeholder ``{model}`` of the command and the variable
            OPENENV_HARNESS_MODEL.
        api_key_env_var: The only secret among the server's environment variables that the harness
            gets.
        max_turns: Truncate an episode after this many turns; None for no limit.
        max_output_bytes: Maximum output of a turn, and maximum length of a line, in bytes.
        terminate_grace_s: Seconds between the request to terminate and the kill.

    Raises:
        pydantic.ValidationError: The command is empty, a limit is not positive, or a field is
            unknown.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    command: list[str]
    working_directory: str = "/workspace"
    env_vars: dict[str, str] = Field(default_factory=dict)
    transport: HarnessTransport = HarnessTransport.STDIO
    mcp_config_path: str | None = None
    startup_timeout_s: Seconds = 30.0
    session_timeout_s: Seconds = 600.0
    model: str | None = None
    api_key_env_var: str | None = None
    max_turns: int | None = Field(default=None, ge=1)
    max_output_bytes: int = Field(default=16 * MEBIBYTE, ge=1)
    terminate_grace_s: float = Field(default=5.0, ge=0, allow_inf_nan=False)

    @field_validator("command")
    @classmethod
    def _has_program(cls, command: list[str]) -> list[str]:
        if not command or not command[0]:
            raise ValueError("command must contain at least one element, the program to run")
        return command


def build_environment(config: HarnessConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """Build the environment variables of a harness.

    The harness gets the variables of `environ` without secrets, the secret that `api_key_env_var`
    names, and `env_vars`.

    Raises:
        HarnessStartupError: The variable that `api_key_env_var` names is not set.
    """
    hidden = secrets_of(environ)
    variables = {k: v for k, v in without_keys(environ).items() if v not in hidden}
    key = config.api_key_env_var
    if key is not None and key not in config.env_vars:
        if not environ.get(key):
            raise HarnessStartupError(
                f"harness {config.name!r}: api_key_env_var={key!r} is not set. Set it where the "
                f"server runs (export {key}=...), or give it in env_vars"
            )
        variables[key] = environ[key]
    if config.model is not None:
        variables["OPENENV_HARNESS_MODEL"] = config.model
    return {**variables, **config.env_vars}
