"""What a tool gives back: from a Python value to MCP's content blocks, and to the older form.

A *result* is a dict as MCP's `tools/call` has it: ``content``, ``structuredContent``, ``isError``
and ``_meta``. Observations and the private dialect (see
`openenv.execution.connections.dialect`) carry the same in an older form, here called *dump*:
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
    "content_of",
    "dump_of",
    "failure",
    "image_block",
    "is_dump",
    "png_of",
    "read_numbers",
    "read_text",
    "result_of",
    "text_in",
    "text_of",
    "told_numbers",
    "without_numpy",
]

# What marks a result whose value is no object, and stands under the key "result" therefore.
WRAPPED = {"fastmcp": {"wrap_result": True}}
# In the ``_meta`` of a result: NaN and the infinities stand in its structured content as text.
NOT_FINITE = "openenv/not_finite"
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}
SMALLEST_PICTURE = 8  # pixels along a side, from which an array of bytes is taken for one


@dataclass(frozen=True)
class Image:
    """A picture that a tool returns.

    Args:
        data: The bytes of an image file.
        mime_type: Its media type.
    """

    data: bytes
    mime_type: str = "image/png"


def content_of(value: Any) -> list[dict[str, Any]]:
    """Write a value as content blocks, without private fields: text, or pictures where it holds
    any.
    """
    if value is None:
        return []
    block = block_of(value)
    if block is not None:
        return [block]
    if isinstance(value, list | tuple) and any(block_of(item) is not None for item in value):
        return [block for item in value for block in content_of(item)]
    return [{"type": "text", "text": text_of(value)}]


def text_of(value: Any) -> str:
    """Write a value as text: a string as it is, anything else as JSON, without private fields."""
    if isinstance(value, str):
        return value
    hidden = private_in(value)
    # NaN is no JSON, but null would be another value.
    text = to_json(value, exclude=hidden, serialize_unknown=True, inf_nan_mode="constants")
    return text.decode()


def without_numpy(value: Any) -> Any:
    """A value in whose lists and dictionaries numbers of NumPy are Python's own."""
    kind = type(value)
    if kind is dict:
        return {without_numpy(key): without_numpy(item) for key, item in value.items()}
    if kind is list:
        return [without_numpy(item) for item in value]
    if kind is tuple:
        return tuple(without_numpy(item) for item in value)
    is_number = kind.__module__ == "numpy" and getattr(value, "ndim", None) == 0
    return value.item() if is_number else value


def told_numbers(value: Any) -> Any:
    """A value as JSON has it, with NaN and the infinities in it as text: JSON has no such numbers,
    and null would be another value.
    """
    written = to_json(value, inf_nan_mode="constants", serialize_unknown=True)
    if b"NaN" not in written and b"Infinity" not in written:
        return value
    return from_json(to_json(value, inf_nan_mode="strings", serialize_unknown=True))


_NUMBERS = {name: float(name) for name in ("NaN", "Infinity", "-Infinity")}


def read_numbers(value: Any) -> Any:
    """Read what `told_numbers` has written."""
    if isinstance(value, str):
        return _NUMBERS.get(value, value)
    if isinstance(value, Mapping):
        return {key: read_numbers(item) for key, item in value.items()}
    return [read_numbers(item) for item in value] if isinstance(value, list) else value


def block_of(value: Any) -> dict[str, Any] | None:
    """The content block that a value is by itself; None where it is text, or several."""
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
        png = png_of(value)
        return None if png is None else image_block(png)
    # FastMCP's pictures and sounds, and MCP's own blocks, of whichever version.
    for method in ("to_image_content", "to_audio_content", "to_resource_content"):
        if hasattr(value, method):
            value = getattr(value, method)()
            break
    if module in ("mcp", "mcp_types", "fastmcp") and hasattr(value, "model_dump"):
        dumped = value.model_dump(mode="json", by_alias=True, exclude_none=True)
        return dumped if isinstance(dumped, dict) and "type" in dumped else None
    return None


def image_block(data: bytes, mime_type: str = "image/png") -> dict[str, Any]:
    """The content block of a picture."""
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": mime_type}


def png_of(array: Any) -> bytes | None:
    """Write an array of pixels, of at least 8 along each side, as PNG; None if it is none."""
    if not is_pixels(array) or min(array.shape[:2]) < SMALLEST_PICTURE:
        return None
    return write_png(array)


def failure(text: str) -> dict[str, Any]:
    """The result of a call that failed, in words that the agent is to read."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def text_in(result: Mapping[str, Any]) -> str:
    """The text of a result, or of its dump."""
    blocks = result.get("content") or ()
    return "\n".join(block["text"] for block in blocks if block.get("type") == "text")


class Dump(dict[str, Any]):
    """A dict whose keys can be read as attributes, as those of FastMCP's own result are: code
    around an environment's `step` reads ``observation.result.data``.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{name!r}; there are {', '.join(self)}") from None


class ToolText(str):
    """The text that a tool returned, with the rest of its result.

    It is the text for whoever prints or compares it. `content`, `structured_content`, `data`,
    `meta` and `is_error` are read as attributes or as keys, as those of a `Dump` are.
    """

    dump: Dump

    def __new__(cls, dump: Mapping[str, Any], text: str) -> ToolText:
        made = super().__new__(cls, text)
        made.dump = Dump({**dump, "content": [Dump(block) for block in dump["content"]]})
        return made

    def __getattr__(self, name: str) -> Any:
        if name == "dump":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.dump, name)

    def __getitem__(self, key: Any) -> Any:
        return self.dump[key] if isinstance(key, str) else super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return what stands under a key of the result, as `dict.get` does."""
        return self.dump.get(key, default)

    def keys(self) -> Any:
        """Return the keys of the result, so that `dict` makes one of it."""
        return self.dump.keys()

    def __eq__(self, other: object) -> bool:
        return self.dump == other if isinstance(other, Mapping) else str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return ToolText, (dict(self.dump), str(self))


def read_text(value: Any) -> Any:
    """Return a tool's result as a `ToolText` if the tool returned text, and else as it is."""
    if not is_dump(value):
        return value
    data, blocks = value.get("data"), value["content"]
    if isinstance(data, str):
        return ToolText(value, data)
    is_text = bool(blocks) and all(block.get("type") == "text" for block in blocks)
    if is_text and data is None and value.get("structured_content") is None:
        return ToolText(value, text_in(value))
    return value


def dump_of(result: Mapping[str, Any]) -> Dump:
    """Write a result in the older form."""
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
    """Whether a value is the dump of a result."""
    return isinstance(value, Mapping) and "content" in value and "is_error" in value


def result_of(dump: Any) -> dict[str, Any]:
    """Read a result back out of its dump; any other value is written as text."""
    if isinstance(dump, ToolText):
        dump = dump.dump
    if not is_dump(dump):
        return {"content": content_of(to_jsonable_python(dump)), "isError": False}
    result: dict[str, Any] = {"content": [_block(block) for block in dump["content"]]}
    if dump.get("structured_content") is not None:
        result["structuredContent"] = dump["structured_content"]
    if dump.get("meta"):
        result["_meta"] = dump["meta"]
    return {**result, "isError": dump["is_error"]}


def _block(dumped: Mapping[str, Any]) -> dict[str, Any]:
    named = {"_meta" if key == "meta" else key: value for key, value in dumped.items()}
    return {key: value for key, value in named.items() if value is not None}
