"""Renderings on the wire of version 1, and as files.

text, SVG          {"text": "..."}                      text/plain, image/svg+xml
array of pixels    {"array": ...}                       image/png
`Picture`          {"media_type": ..., "bytes": ...}    its media_type
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from typing import Any

from openenv.arrays import Picture, Rendering, from_base64, is_pixels, write_png
from openenv.errors import EncodingError, InvalidReturnError, NotSupported, ProtocolError

RENDER = "render"  # the environment's method, the request, and the capability in a server's hello

SVG_BEGINNINGS = ("<svg", "<?xml")
EXPECTED = (
    "text, SVG, a uint8 array of shape (height, width, 3), or a Picture; where there is nothing to "
    "show, raise Refused"
)


def check_can_render(capabilities: Collection[str]) -> None:
    """Check in the capabilities of a server's hello that the server can render.

    Raises:
        NotSupported: The server cannot render.
    """
    if RENDER not in capabilities:
        raise NotSupported(
            "the server is too old for render(), or speaks protocol version 0, which has none; "
            "state() says where the episode stands",
            feature=RENDER,
        )


def checked_rendering(value: Any) -> Rendering:
    """Check that a value is a rendering, and return it.

    Raises:
        InvalidReturnError: The value is not a rendering.
    """
    if isinstance(value, str):
        return str.__str__(value)  # a subclass of str becomes plain text
    if isinstance(value, Picture) or is_pixels(value):
        return value
    kind = type(value).__name__
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        kind = f"{kind} of {value.dtype}, shaped {value.shape}"
    raise InvalidReturnError(f"render returned {kind}; it must return {EXPECTED}")


def as_data(rendering: Rendering) -> dict[str, Any]:
    """Write a rendering as the ``data`` of an answer; the codec converts arrays and bytes."""
    if isinstance(rendering, str):
        return {"text": rendering}
    if isinstance(rendering, Picture):
        return {"media_type": rendering.media_type, "bytes": rendering.data}
    return {"array": rendering}


def from_data(data: Mapping[str, Any]) -> Rendering:
    """Read the ``data`` of an answer, in which JSON carries arrays and bytes as base64.

    Raises:
        ProtocolError: The data hold no rendering.
    """
    value, array = data.get("text"), data.get("array")
    content: Any = data.get("bytes")
    try:
        if "bytes" in data:
            if isinstance(content, str):
                content = base64.b64decode(content, validate=True)
            value = Picture(data.get("media_type", ""), content)
        elif array is not None:
            value = from_base64(array) if isinstance(array, Mapping) else array
        return checked_rendering(value)
    except ImportError as error:
        raise ProtocolError(f"the server sent an array; install numpy ({error})") from error
    except (InvalidReturnError, ValueError, TypeError) as error:
        raise ProtocolError(f"The server sent a rendering that is none: {error}") from None


def as_file(rendering: Rendering) -> tuple[str, bytes]:
    """Return a rendering's media type and bytes: text and SVG in UTF-8, an array as PNG.

    Raises:
        EncodingError: The text holds a lone surrogate, which UTF-8 cannot encode.
    """
    if isinstance(rendering, Picture):
        return rendering.media_type, rendering.data
    if not isinstance(rendering, str):
        return "image/png", write_png(rendering)
    media_type = "image/svg+xml" if rendering.startswith(SVG_BEGINNINGS) else "text/plain"
    try:
        return media_type, rendering.encode()
    except UnicodeEncodeError as error:
        raise EncodingError(f"the text of a rendering cannot be sent: {error}") from error
