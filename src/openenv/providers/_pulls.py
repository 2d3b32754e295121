"""Progress of image downloads by an engine."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from openenv._internal.bars import Tell, bar
from openenv._internal.redaction import redact
from openenv.errors import ProviderError

logger = logging.getLogger(__name__)

Progress = Callable[[str], object] | bool | None
Step = Mapping[str, Any]  # a message of Docker's answer to `POST /images/create`

_IS_COMING = ("Pulling fs layer", "Waiting", "Downloading")
_IS_HERE = (
    "Already exists",
    "Download complete",
    "Verifying Checksum",
    "Extracting",
    "Pull complete",
)


class Layers:
    """The state of an image's layers while an engine fetches the image.

    Engines report a layer's size only during the download, Podman once a second, so the sizes of
    layers that download fast stay unknown.
    """

    def __init__(self) -> None:
        self._is_here: dict[str, bool] = {}
        self._bytes: dict[str, tuple[int, int]] = {}

    def note(self, step: Step) -> None:
        """Update the state from a message of the engine."""
        layer, status = str(step.get("id") or ""), str(step.get("status") or "")
        if status in _IS_HERE:
            self._is_here[layer] = True
        elif status in _IS_COMING:
            self._is_here.setdefault(layer, False)
        if status == "Downloading":
            told = step.get("progressDetail") or {}
            self._bytes[layer] = (int(told.get("current") or 0), int(told.get("total") or 0))
        elif layer in self._bytes and self._is_here.get(layer):
            total = self._bytes[layer][1]
            self._bytes[layer] = (total, total)

    @property
    def sizes(self) -> tuple[int, int]:
        """The fetched bytes and the total bytes of the layers with known sizes."""
        done, total = zip(*self._bytes.values(), strict=True) if self._bytes else ((), ())
        return sum(done), sum(total)

    @property
    def count(self) -> tuple[int, int]:
        """The number of fetched layers, and of all layers."""
        return sum(self._is_here.values()), len(self._is_here)


def fetch(image: str, steps: Iterator[Step], progress: Progress) -> None:
    """Wait until an engine has fetched an image, and show the progress.

    Args:
        image: The image's name.
        steps: The engine's messages.
        progress: True for a bar, False for none, or a function that is called with each line. None
            shows a bar if stderr is a terminal.

    Raises:
        ProviderError: The engine cannot fetch the image.
    """
    began = time.monotonic()
    logger.info("fetching the image %s", image)
    with contextlib.ExitStack() as shown:
        tell: Callable[[Step], object] | None = None
        if progress is True or (progress is None and sys.stderr.isatty()):
            tell = _noting(shown.enter_context(bar(f"fetching {image}")))
        elif callable(progress):
            say = progress
            tell = lambda step: say(_line(step))  # noqa: E731
        failed: object = None
        for step in steps:  # read all of them: unread messages keep the connection open
            failed = step.get("error") or failed
            if tell is not None and not failed:
                tell(step)
        if failed:
            raise ProviderError(redact(f"{image} could not be fetched: {failed}"))
    logger.info("the image %s was fetched in %.1f s", image, time.monotonic() - began)


def _line(step: Step) -> str:
    return " ".join(str(step[key]) for key in ("id", "status", "progress") if step.get(key))


def _noting(tell: Tell) -> Callable[[Step], object]:
    from rich.filesize import decimal

    layers = Layers()

    def note(step: Step) -> None:
        layers.note(step)
        here, layer_count = layers.count
        done, total = layers.sizes
        words = f"{here} of {layer_count} layers"
        if total:
            words += f", {decimal(done)} of {decimal(total)}"
        if layer_count:
            tell(done if total else here, total or layer_count, words)

    return note
