"""The choice of a provider for an image."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from openenv._internal.packages import MissingPackage
from openenv.errors import ProviderError
from openenv.providers.base import Provider
from openenv.settings import run_images

logger = logging.getLogger(__name__)


def provider_for(image: str, package: str) -> Provider:
    """Choose the provider that runs an image on this machine.

    If a container engine has the image, the image runs in a container. Otherwise the installed
    environment package of that name is served in a process, with a warning, since a process is no
    sandbox. If there is no such package, an engine fetches the image. OPENENV_RUN_IMAGES overrides
    the choice.

    Args:
        image: The image's name.
        package: The image-style name of the package to serve instead; see `target_of_image`.

    Raises:
        ProviderError: Neither an engine nor an installed package can serve the image.
        MissingPackage: An engine has, or may have, the image, but Docker's SDK is not installed.
    """
    from openenv.providers.process import ProcessProvider, target_of_image

    wanted = run_images()
    if wanted == "container":
        return _container(image)
    if wanted == "process":
        return ProcessProvider(target_of_image(package))
    engine, no_engine = _engine(image)
    if engine is not None:
        from openenv.providers.engines import inspect_image, sdk

        has_image = False
        with contextlib.suppress(sdk().errors.APIError):
            has_image = inspect_image(engine, image) is not None
        if has_image:
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
    """Return an engine's client and an empty text, or None and the reason."""
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


def _container(image: str) -> Provider:
    from openenv.providers.docker import LocalDockerProvider

    return LocalDockerProvider(image)
