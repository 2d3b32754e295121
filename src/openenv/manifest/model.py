"""The model of ``openenv.yaml``, and the JSON Schema that editors use for completion.

The section ``validation`` declares what `openenv validate` checks.
"""

from __future__ import annotations

import math
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from openenv.manifest import MANIFEST, SPEC_VERSION

__all__ = ["Manifest", "manifest_schema"]

CLASS = r"^[A-Za-z_][A-Za-z0-9_]*$"
APP = r"^[A-Za-z_][A-Za-z0-9_.]*(:[A-Za-z_][A-Za-z0-9_.]*)?$"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def is_portable(path: str) -> bool:
    """Return whether a path is relative, in POSIX form, and stays within the package."""
    pure = PurePosixPath(path)
    return bool(path) and not (
        pure.is_absolute() or ".." in pure.parts or "\\" in path or ":" in path or "\0" in path
    )


class _DeclarationModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RewardDeclaration(_DeclarationModel):
    """The range of an episode's reward, and its margins between success and idleness."""

    range: tuple[float, float] = Field(
        default=(0.0, 1.0), description="Lowest and highest reward of an episode."
    )
    oracle_tolerance: float = Field(
        default=0.0, ge=0.0, description="How far below the highest reward the oracle may end."
    )
    floor_margin: float = Field(
        ge=0.0, description="How far below the highest reward doing nothing must end."
    )
    variance_tolerance: float | None = Field(
        default=None, ge=0.0, description="Variance of a judged reward, in reward squared."
    )

    @field_validator("range")
    @classmethod
    def _is_a_range(cls, value: tuple[float, float]) -> tuple[float, float]:
        low, high = value
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"expected [lowest, highest], finite and ascending, not {list(value)}")
        return value


class JudgePin(_DeclarationModel):
    """The exact model that judges."""

    model: str = Field(description="Name of the model.")
    version: str = Field(description="Version of the model, or the date of its snapshot.")
    params: dict[str, Any] = Field(
        default_factory=dict, description="Parameters of the requests to the model."
    )


class ResourceDeclaration(_DeclarationModel):
    """The most that one running environment needs."""

    cpu: float = Field(gt=0.0, description="CPU cores.")
    memory_mb: int = Field(gt=0, description="Megabytes of memory.")
    disk_mb: int = Field(
        gt=0, description="Megabytes of disk that it may write, without its image."
    )
    episode_timeout_s: float = Field(gt=0.0, description="Seconds that an episode may take.")
    gpus: int = Field(default=0, ge=0, description="Number of GPUs.")
    gpu_types: list[str] = Field(default_factory=list, description="Kinds of GPU that suffice.")


class TaskDistributionPin(_DeclarationModel):
    """The exact distribution of tasks."""

    generator_seed: int | None = Field(
        default=None, description="Seed of the program that generates the tasks."
    )
    dataset_version: str | None = Field(default=None, description="Revision of the data set.")
    generator_model: str | None = Field(default=None, description="Model that wrote the tasks.")


class NetworkPolicy(_DeclarationModel):
    """The hosts that an environment may reach."""

    mode: Literal["public", "no-network", "allowlist"] = Field(
        default="public", description="Anything, nothing, or what `allowed_hosts` lists."
    )
    allowed_hosts: list[str] = Field(
        default_factory=list, description="Host names, *.domains and CIDR ranges."
    )

    @model_validator(mode="after")
    def _lists_hosts_where_they_count(self) -> Self:
        if self.mode == "allowlist" and not self.allowed_hosts:
            raise ValueError("mode allowlist needs allowed_hosts: [host, ...]")
        if self.mode != "allowlist" and self.allowed_hosts:
            raise ValueError(f"allowed_hosts has no meaning in mode {self.mode}: use allowlist")
        return self


class OracleDeclaration(_DeclarationModel):
    """The correct solution that is shown to the verifier."""

    form: Literal["injected_state", "script"] = Field(
        description="Whether the solution is a state to set or a script to play."
    )
    location: str = Field(description="File of the solution, relative to the package.")


class VerifierBinding(_DeclarationModel):
    """The source of an episode's score: the rewards of its steps, or a script."""

    kind: Literal["reward_channel", "script"] = Field(description="Source of the score.")
    entry: str | None = Field(default=None, description="The script, relative to the package.")

    @model_validator(mode="after")
    def _names_its_script(self) -> Self:
        if self.kind == "script" and not self.entry:
            raise ValueError("kind script needs entry: the script's path")
        return self


class CapabilitiesSpec(_DeclarationModel):
    """The optional abilities of an environment that can be checked."""

    oracle: OracleDeclaration | None = Field(default=None, description="Correct solution.")
    verifier: VerifierBinding = Field(description="Source of an episode's score.")
    set_state: bool = Field(default=False, description="Whether a state can be set.")
    llm_judged: bool = Field(default=False, description="Whether a language model scores.")
    rubric_tree: bool = Field(default=False, description="Whether the environment has a Rubric.")
    task_api: bool = Field(default=False, description="Whether the environment serves tasks.")
    canaries: str | None = Field(
        default=None, description="File of plays that must earn no reward."
    )
    declared_tools: list[str] = Field(
        default_factory=list, description="Names of the environment's tools."
    )
    declared_task_count: dict[str, int] = Field(
        default_factory=dict, description="Number of tasks by split."
    )


class TypeSpec(_DeclarationModel):
    """The kinds of task that the environment offers."""

    tags: list[Annotated[str, Field(min_length=1)]] = Field(
        min_length=1, description="Tags such as game, swe or hf:agentic-swe."
    )


class ExecutionDeclaration(_DeclarationModel):
    """The way to build and run an environment for a validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["openenv_ws"] = Field(
        default="openenv_ws", description="Protocol by which the environment is driven."
    )
    probe_path: str = Field(
        default="validation/runtime.json", description="File of the episode to play."
    )
    dockerfile: str = Field(default="Dockerfile", description="Dockerfile of the image.")
    context: str = Field(default=".", description="Build context of the image.")
    agent_boundary: Literal["api"] = Field(
        default="api", description="Boundary that an agent can reach."
    )
    requires_credentials: StrictBool = Field(
        default=False, description="Whether the environment needs a user's key to run."
    )

    @field_validator("probe_path", "dockerfile", "context")
    @classmethod
    def _stays_within_the_package(cls, value: str) -> str:
        if not is_portable(value):
            raise ValueError(f"{value!r} must be a path within the package, with / and without ..")
        return value


class Declarations(_DeclarationModel):
    """All declarations, independent of the file format."""

    reward: RewardDeclaration
    judge: JudgePin | None = Field(default=None, description="Judge of a judged reward.")
    resources: ResourceDeclaration
    task_distribution: TaskDistributionPin | None = Field(
        default=None, description="Distribution of tasks."
    )
    network: NetworkPolicy = Field(default_factory=NetworkPolicy)
    capabilities: CapabilitiesSpec
    types: TypeSpec

    @model_validator(mode="after")
    def _pins_its_judge(self) -> Self:
        if self.capabilities.llm_judged and self.judge is None:
            raise ValueError("capabilities.llm_judged needs judge: {model, version, params}")
        if self.judge is not None and not self.capabilities.llm_judged:
            raise ValueError("judge is given, and capabilities.llm_judged is not true")
        return self


class ValidationSection(Declarations):
    """The declarations as written in ``openenv.yaml``."""

    execution: ExecutionDeclaration | None = Field(
        default=None, description="How to build and run the environment for a validation."
    )


def _text(value: Any) -> Any:
    """Convert what YAML reads as a number, a date or a boolean back to the intended text."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if value is None or isinstance(value, str | list | dict) else str(value)


def _number(value: Any) -> Any:
    """Convert a version that is written as text or as a whole float to an integer."""
    if isinstance(value, str):
        value = float(value) if value.replace(".", "", 1).isdigit() else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[str, BeforeValidator(_text)]


class Manifest(BaseModel):
    """The content of an ``openenv.yaml``."""

    model_config = ConfigDict(extra="ignore")

    spec_version: Annotated[int, BeforeValidator(_number)] = Field(
        default=SPEC_VERSION,
        ge=1,
        le=SPEC_VERSION,
        description="Version of this file's format.",
    )
    name: Text = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        max_length=96,
        description="Name of the environment, its image, its Space and its package, such as "
        "chess_env.",
    )
    version: Text | None = Field(
        default=None, description='Version of the environment, in quotes, such as "0.1.0".'
    )
    description: Text | None = Field(
        default=None, description="Summary of the environment in one line."
    )
    type: str = Field(default="space", description="Kind of package: space.")
    runtime: str = Field(
        default="fastapi", description="Framework that serves the environment: fastapi."
    )
    app: str = Field(
        default="server.app:app",
        pattern=APP,
        description="The ASGI application, as module:attribute; a module that begins with server "
        "is the package's own.",
    )
    port: int = Field(
        default=8000, ge=1, le=65535, description="Port on which the container listens."
    )
    client: str | None = Field(
        default=None, pattern=CLASS, description="Class of the client; inferred by default."
    )
    action: str | None = Field(
        default=None, pattern=CLASS, description="Class of the actions; inferred by default."
    )
    observation: str | None = Field(
        default=None,
        pattern=CLASS,
        description="Class of the observations; inferred by default.",
    )
    variables: dict[Annotated[str, Field(pattern=CLASS)], Text] = Field(
        default_factory=dict,
        description="Environment variables of the server. They are public: put no secrets here.",
    )
    license: Text | None = Field(
        default=None, description="SPDX identifier, such as MIT; by default that of pyproject.toml."
    )
    tags: list[Text] = Field(default_factory=list, description="Keywords for searching.")
    author: Text | None = Field(default=None, description="Author of the environment.")
    validation: ValidationSection | None = Field(
        default=None, description="Declarations that `openenv validate` checks."
    )


def manifest_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of ``openenv.yaml``."""
    return {"$schema": DIALECT, **Manifest.model_json_schema(), "title": MANIFEST}
