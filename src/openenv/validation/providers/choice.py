"""Choosing what starts packages here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from openenv.validation.providers import ValidationProvider
from openenv.validation.static.building import BuildSettings

__all__ = ["ProviderName", "choose_provider"]

ProviderName = Literal["auto", "docker", "process"]


def choose_provider(
    name: ProviderName = "auto",
    *,
    skip_build: bool = False,
    settings: BuildSettings | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> ValidationProvider:
    """Choose a provider.

    Args:
        name: ``docker``, ``process``, or ``auto``: a container where an engine can build and run
            one, else a process. The report names what was taken, and what that could not enforce.
        skip_build: There will be no image, so ``auto`` is a process.
        settings: What this machine needs to build images.
        tell: Told why there is no container, and of the steps of builds.
    """
    from openenv.validation.providers.process import ProcessValidationProvider

    if name == "process" or (name == "auto" and skip_build):
        return ProcessValidationProvider()
    from openenv.validation.providers.docker import DockerValidationProvider, why_no_engine

    if name == "auto" and (why_not := why_no_engine()) is not None:
        tell(f"it is run in a process, which contains nothing: {why_not}")
        return ProcessValidationProvider()
    return DockerValidationProvider(settings, tell)
