"""Families of environments, named as in ``openspiel:tic_tac_toe``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openenv._internal.quoting import did_you_mean
from openenv.client.generic import GenericEnvClient
from openenv.errors import OpenEnvError


class FamilyError(OpenEnvError, ValueError):
    """The family does not exist, or the server does not play the variant."""


@dataclass(frozen=True)
class Family:
    """Environments of one server, among which the arguments of `reset` choose.

    Attributes:
        environment: The name of the installed environment.
        field: The argument of `reset`, and the field of the state, that names the variant.
        config: The argument that takes a configuration; None if there is none.
        prompt: Instructions for an agent, with ``{variant}`` in place of the name.
    """

    environment: str
    field: str
    config: str | None
    prompt: str


FAMILIES = {
    "openspiel": Family(
        "openspiel",
        "game_name",
        "game_params",
        "Play the game {variant} and win it. Each of your moves is one of the legal_actions that "
        "you are shown.",
    ),
    "reasoning_gym": Family(
        "reasoning_gym",
        "dataset_name",
        "dataset_config",
        "Answer the question. Give the answer alone, in the form that the question asks for.",
    ),
}


@dataclass(frozen=True)
class Variant:
    """A member of a family."""

    family: Family
    name: str
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reset(self) -> dict[str, Any]:
        """The arguments of a reset that chooses the variant."""
        chosen: dict[str, Any] = {self.family.field: self.name}
        if self.config and self.family.config is not None:
            chosen[self.family.config] = dict(self.config)
        return chosen

    @property
    def prompt(self) -> str:
        """The instructions for an agent."""
        return self.family.prompt.format(variant=self.name)


def variant_of(text: str, config: Mapping[str, Any] | None = None) -> Variant | None:
    """Parse ``FAMILY:VARIANT``; return None if the text does not begin with a family's name.

    Raises:
        FamilyError: The variant is missing.
    """
    name, _, variant = text.partition(":")
    if name not in FAMILIES:
        return None
    if not variant:
        example = {"openspiel": "tic_tac_toe"}.get(name, "leg_counting")
        raise FamilyError(f"{text!r} names no variant; expected {name}:NAME, as {name}:{example}")
    return Variant(FAMILIES[name], variant, dict(config or {}))


def no_family(text: str) -> FamilyError:
    """Return the error for a text that names no family."""
    hint = did_you_mean(text.partition(":")[0], FAMILIES)
    known = ", ".join(f"{name}:NAME" for name in FAMILIES)
    return FamilyError(f"Unknown env {text!r}: the families are {known}{hint}")


def check_served(address: str, variant: Variant) -> None:
    """Check that a server plays a variant: a server with an earlier protocol silently ignores
    unknown arguments and would play another variant.

    Raises:
        FamilyError: The server plays another variant.
        OpenEnvError: The server does not answer, or refuses the reset.
    """
    with GenericEnvClient(address).sync() as client:
        client.reset(**variant.reset)
        state: Any = client.state()
    told = state.get(variant.family.field) if isinstance(state, dict) else None
    if told is None:
        told = getattr(state, variant.family.field, None)
    if told is not None and told != variant.name:
        raise FamilyError(
            f"the server at {address} plays {told!r}, and {variant.name!r} was asked for; start "
            "one that plays it"
        )
