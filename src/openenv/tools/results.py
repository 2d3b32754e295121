"""Tool results: conversion between Python values, MCP's content blocks and the older dump form.

A *result* is a dict in the form of MCP's `tools/call`: ``content``, ``structuredContent``,
``isError`` and ``_meta``. Observations and the private dialect (see
`openenv.execution.connections.json_rpc`) carry the same data in an older form, here called *dump*:
``structured_content``, ``is_error``, ``meta``, and ``data``, the plain value.

https://modelcontextprotocol.io/specification/2026-07-28/server/tools#tool-result
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json, to_jsonable_python
from typing_extensions import TypeIs

from openenv.arrays import is_pixels, write_png
from openenv.types import private_in

__all__ = [
    "NOT_FINITE",
    "WRAPPED",
    "Dump",
    "Image",
    "ToolText",
    "to_content",
    "to_dump",
    "build_failure",
    "image_block",
    "is_dump",
    "encode_png",
    "read_numbers",
    "read_text",
    "from_dump",
    "extract_text",
    "to_text",
    "write_numbers",
    "without_numpy",
]

# Marks a result whose value is not an object and is therefore wrapped under the key "result".
WRAPPED = {"fastmcp": {"wrap_result": True}}
# A key in the ``_meta`` of a result: NaN and infinities are text in its structured content.
NOT_FINITE = "openenv/not_finite"
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}
SMALLEST_PICTURE = 8  # minimum side in pixels of a byte array that counts as a picture


@dataclass(frozen=True)
class Image:
    """An image that a tool returns.

    Args:
        data: The bytes of an image file.
        mime_type: The media type.
    """

    data: bytes
    mime_type: str = "image/png"


def to_content(value: Any) -> list[dict[str, Any]]:
    """Convert a value to content blocks (text and images), without private fields."""
    if value is None:
        return []
    block = to_block(value)
    if block is not None:
        return [block]
    if isinstance(value, list | tuple) and any(to_block(item) is not None for item in value):
        return [block for item in value for block in to_content(item)]
    return [{"type": "text", "text": to_text(value)}]


def to_text(value: Any) -> str:
    """Convert a value to text: a string as is, other values as JSON without private fields."""
    if isinstance(value, str):
        return value
    hidden = private_in(value)
    # NaN is not valid JSON, but null would be another value.
    text = to_json(value, exclude=hidden, serialize_unknown=True, inf_nan_mode="constants")
    return text.decode()


def without_numpy(value: Any) -> Any:
    """Replace NumPy scalars within lists, tuples and dictionaries by Python numbers."""
    kind = type(value)
    if kind is dict:
        return {without_numpy(key): without_numpy(item) for key, item in value.items()}
    if kind is list:
        return [without_numpy(item) for item in value]
    if kind is tuple:
        return tuple(without_numpy(item) for item in value)
    is_number = kind.__module__ == "numpy" and getattr(value, "ndim", None) == 0
    return value.item() if is_number else value


def write_numbers(value: Any) -> Any:
    """Replace NaN and infinities within a value by text.

    JSON has no such numbers, and null would be another value.
    """
    written = to_json(value, inf_nan_mode="constants", serialize_unknown=True)
    if b"NaN" not in written and b"Infinity" not in written:
        return value
    return from_json(to_json(value, inf_nan_mode="strings", serialize_unknown=True))


_NUMBERS = {name: float(name) for name in ("NaN", "Infinity", "-Infinity")}


def read_numbers(value: Any) -> Any:
    """Reverse `write_numbers`."""
    if isinstance(value, str):
        return _NUMBERS.get(value, value)
    if isinstance(value, Mapping):
        return {key: read_numbers(item) for key, item in value.items()}
    return [read_numbers(item) for item in value] if isinstance(value, list) else value


def to_block(value: Any) -> dict[str, Any] | None:
    """Return the content block for an image or other medium, or None for other values."""
    if isinstance(value, Image):
        return image_block(value.data, value.mime_type)
    if isinstance(value, bytes):
        for signature, mime_type in _SIGNATURES.items():
            if value.startswith(signature):
                return image_block(value, mime_type)
        return None
    module = type(value).__module__.partition(".")[0]
    if module == "PIL" and hasattr(value, "save"):
        file = io.BytesIO()
        value.save(file, format="PNG")
        return image_block(file.getvalue())
    if module == "numpy":
        png = encode_png(value)
        return None if png is None else image_block(png)
    # FastMCP's pictures and sounds, and MCP's own blocks, of any version.
    for method in ("to_image_content", "to_audio_content", "to_resource_content"):
        if hasattr(value, method):
            value = getattr(value, method)()
            break
    if module in ("mcp", "mcp_types", "fastmcp") and hasattr(value, "model_dump"):
        dumped = value.model_dump(mode="json", by_alias=True, exclude_none=True)
        return dumped if isinstance(dumped, dict) and "type" in dumped else None
    return None


def image_block(data: bytes, mime_type: str = "image/png") -> dict[str, Any]:
    """Return the content block of an image."""
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": mime_type}


def encode_png(array: Any) -> bytes | None:
    """Encode an array of at least 8 by 8 pixels as PNG; return None for other arrays."""
    if not is_pixels(array) or min(array.shape[:2]) < SMALLEST_PICTURE:
        return None
    return write_png(array)


def build_failure(text: str) -> dict[str, Any]:
    """Return the result of a failed call, with a text for the agent."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def extract_text(result: Mapping[str, Any]) -> str:
    """Return the text of a result or dump."""
    blocks = result.get("content") or ()
    return "\n".join(block["text"] for block in blocks if block.get("type") == "text")


class Dump(dict[str, Any]):
    """A dict with keys that are attributes too.

    FastMCP's own results have attributes, so code around an environment's `step` reads
    ``observation.result.data``.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{name!r}; there are {', '.join(self)}") from None


class ToolText(str):
    """The text that a tool returned, with the rest of the result as attributes.

    It is a string to print and compare. `content`, `structured_content`, `data`, `meta` and
    `is_error` can be read as attributes or as keys, as in a `Dump`.
    """

    dump: Dump

    def __new__(cls, dump: Mapping[str, Any], text: str) -> ToolText:
        made = super().__new__(cls, text)
        made.dump = Dump({**dump, "content": [Dump(block) for block in dump["content"]]})
        return made

    def __getattr__(self, name: str) -> Any:
        if name == "dump":  # during unpickling
            raise AttributeError(name)
        return getattr(self.dump, name)

    def __getitem__(self, key: Any) -> Any:
        return self.dump[key] if isinstance(key, str) else super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key of the result, as `dict.get` does."""
        return self.dump.get(key, default)

    def keys(self) -> Any:
        """Return the keys of the result, so that `dict(text)` works."""
        return self.dump.keys()

    def __eq__(self, other: object) -> bool:
        return self.dump == other if isinstance(other, Mapping) else str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return ToolText, (dict(self.dump), str(self))


def read_text(value: Any) -> Any:
    """Return a `ToolText` for the dump of a result that is text, and other values unchanged."""
    if not is_dump(value):
        return value
    data, blocks = value.get("data"), value["content"]
    if isinstance(data, str):
        return ToolText(value, data)
    is_text = bool(blocks) and all(block.get("type") == "text" for block in blocks)
    if is_text and data is None and value.get("structured_content") is None:
        return ToolText(value, extract_text(value))
    return value


def to_dump(result: Mapping[str, Any]) -> Dump:
    """Convert a result to a dump."""
    structured, meta = result.get("structuredContent"), result.get("_meta")
    data = structured
    wrapped = isinstance(meta, Mapping) and bool((meta.get("fastmcp") or {}).get("wrap_result"))
    if wrapped and isinstance(structured, Mapping):
        data = structured.get("result")
    return Dump(
        content=[_dumped_block(block) for block in result.get("content") or ()],
        structured_content=structured,
        meta=meta,
        data=data,
        is_error=bool(result.get("isError")),
    )


def _dumped_block(block: Mapping[str, Any]) -> Dump:
    rest = {key: value for key, value in block.items() if key not in ("annotations", "_meta")}
    return Dump({**rest, "annotations": block.get("annotations"), "meta": block.get("_meta")})


def is_dump(value: Any) -> TypeIs[Mapping[str, Any]]:
    """Return whether a value is the dump of a result."""
    return isinstance(value, Mapping) and "content" in value and "is_error" in value


def from_dump(dump: Any) -> dict[str, Any]:
    """Convert a dump back to a result; convert any other value to a text result."""
    if isinstance(dump, ToolText):
        dump = dump.dump
    if not is_dump(dump):
        return {"content": to_content(to_jsonable_python(dump)), "isError": False}
    result: dict[str, Any] = {"content": [_block(block) for block in dump["content"]]}
    if dump.get("structured_content") is not None:
        result["structuredContent"] = dump["structured_content"]
    if dump.get("meta"):
        result["_meta"] = dump["meta"]
    return {**result, "isError": dump["is_error"]}


def _block(dumped: Mapping[str, Any]) -> dict[str, Any]:
    named = {"_meta" if key == "meta" else key: value for key, value in dumped.items()}
    return {key: value for key, value in named.items() if value is not None}
