"""Which provider runs an image where nobody has said so."""

from __future__ import annotations

import logging
from typing import Any

from openenv._internal.packages import MissingPackage
from openenv.errors import ProviderError
from openenv.providers.base import Provider
from openenv.settings import run_images

__all__ = ["provider_for"]

logger = logging.getLogger(__name__)


def provider_for(image: str, package: str) -> Provider:
    """Choose what runs an image on this machine.

    An engine that has it runs it in a container. Otherwise the installed environment package of
    its name is served in a process, and a warning says so: a process is no sandbox. Where there
    is no such package either, an engine fetches the image. Where an engine has it, and only what
    speaks to the engine is missing, nothing is run instead. OPENENV_RUN_IMAGES decides otherwise.

    Args:
        image: Its name.
        package: A name that an installed package stands for, as that of an image.

    Raises:
        ProviderError: There is neither an engine nor such a package.
        MissingPackage: There is an engine, and Docker's SDK, which speaks to it, is not installed.
    """
    from openenv.providers.process import ProcessProvider, target_of_image

    wanted = run_images()
    if wanted == "container":
        return _container(image)
    if wanted == "process":
        return ProcessProvider(target_of_image(package))
    engine, no_engine = _engine(image)
    if engine is not None and _has(engine, image):
        return _container(image)
    try:
        target = target_of_image(package)
    except ProviderError as no_package:
        if engine is not None:
            return _container(image)
        raise ProviderError(
            f"{image!r} cannot be run: {no_engine}; and {no_package}, or pass provider=..."
        ) from None
    why = no_engine if engine is None else "the engine of this machine does not have the image"
    logger.warning(
        "%s is served by the installed package %s in a process, which is no sandbox: %s",
        image,
        target,
        why,
    )
    return ProcessProvider(target)


def _engine(image: str) -> tuple[Any, str]:
    """An engine, or why there is none."""
    from openenv.providers.engines import find_engine, holder_of

    try:
        return find_engine(), ""
    except MissingPackage as error:
        holder = holder_of(image)
        if holder is None:
            return None, str(error)
        raise MissingPackage(
            f"{image!r} is not run, though {holder} is there: {error}. To run the installed "
            "package of its name on this machine instead, in a process, which is no sandbox, set "
            "OPENENV_RUN_IMAGES=process"
        ) from error
    except ProviderError as error:
        return None, str(error)


def _has(engine: Any, image: str) -> bool:
    from openenv.providers.engines import sdk

    try:
        engine.inspect_image(image)
    except sdk().errors.APIError:
        return False
    return True


def _container(image: str) -> Provider:
    from openenv.providers.docker import LocalDockerProvider

    return LocalDockerProvider(image)
