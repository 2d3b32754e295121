"""The choice of a validation provider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from openenv.validation.providers import ValidationProvider
from openenv.validation.static.builds import BuildSettings

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
        name: ``docker``, ``process``, or ``auto``: a container if an engine can build and run one,
            else a process. The report names the choice, and what it could not enforce.
        skip_build: Do not build an image, so that ``auto`` chooses a process.
        settings: Settings to build images on this machine.
        tell: Receives the reason why there is no container, and build steps.
    """
    from openenv.validation.providers.process import ProcessValidationProvider

    if name == "process" or (name == "auto" and skip_build):
        return ProcessValidationProvider()
    from openenv.validation.providers.docker import DockerValidationProvider, find_engine_fault

    if name == "auto" and (why_not := find_engine_fault()) is not None:
        tell(f"it is run in a process, which contains nothing: {why_not}")
        return ProcessValidationProvider()
    return DockerValidationProvider(settings, tell)
