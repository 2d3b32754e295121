"""The section ``validation`` of a manifest: what an environment declares, to be held against it."""

from __future__ import annotations

import math
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, field_validator, model_validator
from typing_extensions import Self

__all__ = [
    "CapabilitiesSpec",
    "Declarations",
    "ExecutionDeclaration",
    "JudgePin",
    "NetworkPolicy",
    "OracleDeclaration",
    "ResourceDeclaration",
    "RewardDeclaration",
    "Section",
    "TaskDistributionPin",
    "TypeSpec",
    "VerifierBinding",
    "is_portable",
]


def is_portable(path: str) -> bool:
    """Whether a path is relative, in POSIX form, and stays within the package."""
    pure = PurePosixPath(path)
    return bool(path) and not (
        pure.is_absolute() or ".." in pure.parts or "\\" in path or ":" in path or "\0" in path
    )


class _Declared(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RewardDeclaration(_Declared):
    """What the reward of an episode can be, and how sharply it tells success from idleness."""

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


class JudgePin(_Declared):
    """Which model judges, exactly."""

    model: str = Field(description="Its name.")
    version: str = Field(description="Its version, or the date of its snapshot.")
    params: dict[str, Any] = Field(default_factory=dict, description="What it is asked with.")


class ResourceDeclaration(_Declared):
    """What one running environment needs at most."""

    cpu: float = Field(gt=0.0, description="Cores.")
    memory_mb: int = Field(gt=0, description="Megabytes of memory.")
    disk_mb: int = Field(gt=0, description="Megabytes that it may write, without its image.")
    episode_timeout_s: float = Field(gt=0.0, description="Seconds that an episode may take.")
    gpus: int = Field(default=0, ge=0, description="GPUs.")
    gpu_types: list[str] = Field(default_factory=list, description="Kinds of GPU that will do.")


class TaskDistributionPin(_Declared):
    """Which tasks there are, exactly."""

    generator_seed: int | None = Field(default=None, description="Of a program that makes them.")
    dataset_version: str | None = Field(default=None, description="The data set's revision.")
    generator_model: str | None = Field(default=None, description="The model that wrote them.")


class NetworkPolicy(_Declared):
    """What an environment may reach."""

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


class OracleDeclaration(_Declared):
    """How a correct solution is shown to the verifier."""

    form: Literal["injected_state", "script"] = Field(
        description="A state that is set, or something that is played."
    )
    location: str = Field(description="Its file, relative to the package.")


class VerifierBinding(_Declared):
    """What scores an episode: the rewards of its steps, or a script."""

    kind: Literal["reward_channel", "script"] = Field(description="Which of the two.")
    entry: str | None = Field(default=None, description="The script, relative to the package.")

    @model_validator(mode="after")
    def _names_its_script(self) -> Self:
        if self.kind == "script" and not self.entry:
            raise ValueError("kind script needs entry: the script's path")
        return self


class CapabilitiesSpec(_Declared):
    """What an environment can do and have checked."""

    oracle: OracleDeclaration | None = Field(default=None, description="Its correct solution.")
    verifier: VerifierBinding = Field(description="What scores an episode.")
    set_state: bool = Field(default=False, description="Whether a state can be set.")
    llm_judged: bool = Field(default=False, description="Whether a language model scores.")
    rubric_tree: bool = Field(default=False, description="Whether it has a Rubric.")
    task_api: bool = Field(default=False, description="Whether it serves tasks.")
    canaries: str | None = Field(
        default=None, description="A file of plays that must not be rewarded."
    )
    declared_tools: list[str] = Field(default_factory=list, description="Names of its tools.")
    declared_task_count: dict[str, int] = Field(
        default_factory=dict, description="Number of tasks by split."
    )


class TypeSpec(_Declared):
    """What kind of task it is."""

    tags: list[Annotated[str, Field(min_length=1)]] = Field(
        min_length=1, description="Such as game, swe or hf:agentic-swe."
    )


class ExecutionDeclaration(_Declared):
    """How an environment is built and run for a validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["openenv_ws"] = Field(default="openenv_ws", description="How it is driven.")
    probe_path: str = Field(
        default="validation/runtime.json", description="The episode that is played."
    )
    dockerfile: str = Field(default="Dockerfile", description="What builds its image.")
    context: str = Field(default=".", description="The directory that the image is built from.")
    agent_boundary: Literal["api"] = Field(default="api", description="What an agent can reach.")
    requires_credentials: StrictBool = Field(
        default=False, description="Whether it cannot run without somebody's key."
    )

    @field_validator("probe_path", "dockerfile", "context")
    @classmethod
    def _stays_within_the_package(cls, value: str) -> str:
        if not is_portable(value):
            raise ValueError(f"{value!r} must be a path within the package, with / and without ..")
        return value


class Declarations(_Declared):
    """What is declared, whatever file it is written in."""

    reward: RewardDeclaration
    judge: JudgePin | None = Field(default=None, description="Of a judged reward.")
    resources: ResourceDeclaration
    task_distribution: TaskDistributionPin | None = Field(
        default=None, description="Which tasks there are."
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


class Section(Declarations):
    """The section as it stands in ``openenv.yaml``."""

    execution: ExecutionDeclaration | None = Field(
        default=None, description="How it is built and run for a validation."
    )
