"""Fields that hold arrays and binary data, and pictures.

    class AtariObservation(Observation):
        frame: NDArray[np.uint8, (210, 160, 3)]
        screenshot: Annotated[bytes, Blob("image/png")] = b""

In the environment and in the client the field is a `numpy.ndarray` (or `bytes`). Protocol version 1
sends raw bytes; version 0, which is JSON, sends nested lists or base64. NumPy is not a requirement
of this package, and is imported with the first array.
"""

from __future__ import annotations

import base64
import binascii
import math
import operator
import os
import re
import struct
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from pydantic_core import PydanticCustomError, core_schema, to_json
from typing_extensions import TypeIs

from openenv._internal.generics import once_per_class

if TYPE_CHECKING:
    import numpy as np
    from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler

__all__ = [
    "Array",
    "Blob",
    "Kept",
    "NDArray",
    "Picture",
    "Rendering",
    "as_base64",
    "from_base64",
    "holds_arrays",
    "is_pixels",
    "is_written_by_arrays",
    "number_of",
    "pack_array",
    "unpack_array",
    "write_png",
]

Shape = Sequence[int | None]

# Kinds of dtypes whose bytes are valid in another process: not objects, which are pointers.
PLAIN_KINDS = "biufcSUmMV"
LISTED_KINDS = "biufU"  # kinds that JSON lists can hold; others are always written as base64
SMALL = 8192  # bytes


class Array:
    """Annotates a `numpy.ndarray` field: ``Annotated[np.ndarray, Array("uint8", (64, 64))]``.

    Nested lists are accepted too. They are cast to the dtype if that changes no value; floating
    point values may lose precision, and null becomes NaN in a floating point or complex array.

    Args:
        dtype: The dtype, as `numpy.dtype` takes it. Default: any except objects.
        shape: The length of each axis, None for any length. Default: any shape.
        text: How JSON carries the array: ``list`` for nested lists of numbers, or ``base64`` for an
            object ``{"dtype", "shape", "data"}`` with base64 data. Both are read.

    Example:
        >>> from typing import Annotated
        >>> import numpy as np
        >>> from openenv import Array, Observation
        >>> class Frame(Observation):
        ...     pixels: Annotated[np.ndarray, Array("uint8", (2, 2))]
        >>> Frame(pixels=[[0, 1], [2, 3]]).pixels.dtype
        dtype('uint8')
    """

    def __init__(
        self,
        dtype: Any = None,
        shape: Shape | None = None,
        *,
        text: Literal["list", "base64"] = "list",
    ) -> None:
        self.dtype = dtype
        self.shape = None if shape is None else tuple(shape)
        self.text = text

    def __repr__(self) -> str:
        return f"Array({self.dtype!r}, {self.shape!r}, text={self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((str(self.dtype), self.shape, self.text))

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        import numpy as np

        dtype = None if self.dtype is None else np.dtype(self.dtype)
        if dtype is not None and not _is_plain(dtype):
            raise TypeError(f"an array of dtype {dtype} cannot be sent to another process")
        return core_schema.no_info_plain_validator_function(
            lambda value: self._checked(_as_array(value, dtype)),
            serialization=core_schema.plain_serializer_function_ser_schema(
                _write_lists if self.text == "list" else _write_base64,
                info_arg=True,
                when_used="json",
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        import numpy as np

        described: dict[str, Any] = {}
        if self.dtype is not None:
            described["dtype"] = np.dtype(self.dtype).name
        if self.shape is not None:
            described["shape"] = list(self.shape)
        if self.text == "base64" or not _is_listed(self.dtype):
            properties = {
                "dtype": {"type": "string"},
                "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                "data": {"type": "string", "contentEncoding": "base64"},
            }
            required = list(properties)
            return {"type": "object", "properties": properties, "required": required, **described}
        return {**_nested(self.shape, _number_schema(self.dtype)), **described}

    def _checked(self, array: np.ndarray) -> np.ndarray:
        wanted = self.shape
        if wanted is not None and not _fits(array.shape, wanted):
            if array.size == 0 and array.ndim < len(wanted):  # empty lists hide further axes
                shape = (*array.shape, *((n or 0) for n in wanted[array.ndim :]))
                if _fits(shape, wanted):
                    return array.reshape(shape)
            raise PydanticCustomError(
                "array_shape",
                "Expected an array of shape {expected}, got {got}",
                {"expected": str(wanted), "got": str(array.shape)},
            )
        return array


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(wanted) == len(shape) and all(
        w is None or w == got for w, got in zip(wanted, shape, strict=True)
    )


if TYPE_CHECKING:
    NDArray = Annotated[Any, ...]
else:

    class NDArray:
        """A field that holds an array: ``NDArray[np.uint8, (210, 160, 3)]``.

        The shape is optional, and a bare ``NDArray`` takes any array. The form is short for
        ``Annotated[numpy.ndarray, Array(...)]``, which static type checkers understand better.

        Example:
            >>> import numpy as np
            >>> from openenv import NDArray, Observation
            >>> class Frame(Observation):
            ...     pixels: NDArray[np.uint8, (2, 2)]
            >>> Frame(pixels=[[0, 1], [2, 3]]).pixels.shape
            (2, 2)
        """

        @classmethod
        def __get_pydantic_core_schema__(
            cls, source: Any, handler: GetCoreSchemaHandler
        ) -> core_schema.CoreSchema:
            return Array().__get_pydantic_core_schema__(source, handler)

        @classmethod
        def __get_pydantic_json_schema__(
            cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
        ) -> dict[str, Any]:
            return Array().__get_pydantic_json_schema__(schema, handler)

        def __class_getitem__(cls, parameters: Any) -> Any:
            import numpy as np

            dtype, shape = parameters if isinstance(parameters, tuple) else (parameters, None)
            return Annotated[np.ndarray, Array(None if dtype is Any else dtype, shape)]


class Blob:
    """Annotates a `bytes` field that JSON carries as base64: an image, a file.

    Args:
        media_type: Media type of the bytes, such as ``image/png``, for the JSON schema.

    Example:
        >>> from typing import Annotated
        >>> from openenv import Blob, Observation
        >>> class Page(Observation):
        ...     screenshot: Annotated[bytes, Blob("image/png")]
        >>> Page(screenshot=b"PNG").model_dump(mode="json")["screenshot"]
        'UE5H'
    """

    def __init__(self, media_type: str | None = None) -> None:
        self.media_type = media_type

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(
            _decoded_blob,
            core_schema.bytes_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(
                _write_text, info_arg=True, when_used="json"
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        described = {"type": "string", "contentEncoding": "base64"}
        return (
            described
            if self.media_type is None
            else {**described, "contentMediaType": self.media_type}
        )


def _decoded_blob(value: Any) -> Any:
    if isinstance(value, str):
        return _from_base64(value)
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _from_base64(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise PydanticCustomError("base64", "Expected base64: {why}", {"why": str(error)}) from None


_IMAGE_TYPE = re.compile(r"image/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as the bytes of a file: ``Picture("image/png", data)``.

    Args:
        media_type: Media type of an image (RFC 6838), without parameters.
        data: The bytes.

    Raises:
        ValueError: The media type is not that of an image.
        TypeError: The data are not bytes.

    Example:
        >>> from openenv import Picture
        >>> Picture("image/png", b"...").media_type
        'image/png'
    """

    media_type: str
    data: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.media_type, str) or not _IMAGE_TYPE.fullmatch(self.media_type):
            raise ValueError(f"media_type is {self.media_type!r:.150}; expected image/png, say")
        if not isinstance(self.data, bytes):
            raise TypeError(f"the data of a Picture are bytes, not {type(self.data).__name__}")


Rendering: TypeAlias = Union[str, Picture, "np.ndarray"]
"""The result of `openenv.environment.Renders.render`."""


# ------------------------------------------------------------------ conversion of values


def _as_array(value: Any, dtype: np.dtype | None) -> np.ndarray:
    import numpy as np

    if type(value) is np.ndarray and (dtype is None or value.dtype == dtype):
        return _plain(value)
    if isinstance(value, Mapping):
        value = _from_object(value)
    elif isinstance(value, list | tuple):
        _check_texts(value, dtype)
    try:
        array = np.asarray(value)
        if array.dtype.kind == "O" and dtype is not None and dtype.kind in "fc":
            array = np.asarray(value, dtype=dtype)  # null becomes NaN
    except (ValueError, TypeError) as error:
        raise _no_array(str(error)) from None
    if dtype is not None and array.dtype != dtype:
        if array.dtype.kind == "V" == dtype.kind and array.dtype.itemsize == dtype.itemsize:
            array = array.view(dtype)  # the names of a structure's fields are not sent
        else:
            array = _cast(array, dtype)
    return _plain(array)


# In an array, each text takes as much memory as the longest. An array of texts may take this many
# bytes, or this many times the size of its JSON.
MAX_TEXTS_BYTES, MAX_TEXTS_RATIO = 2**16, 16


def _check_texts(values: list[Any] | tuple[Any, ...], dtype: np.dtype | None) -> None:
    """Refuse texts in a numeric array, and texts that would take far more memory as an array."""
    try:
        written = to_json(values, serialize_unknown=True, inf_nan_mode="null")
    except ValueError:
        return  # not a value from a message; NumPy's own error says more
    if b'"' not in written:
        return
    count = longest = 0
    rows: list[Any] = [values]
    while rows:
        for value in rows.pop():
            if isinstance(value, list | tuple):
                rows.append(value)
                continue
            count += 1
            if isinstance(value, str | bytes):
                if dtype is not None and dtype.kind in "biufc":
                    raise _no_array("a text is no number")
                longest = max(longest, len(value))
    takes = 4 * count * longest
    if takes > max(MAX_TEXTS_BYTES, MAX_TEXTS_RATIO * len(written)):
        raise _no_array(f"{count} texts of up to {longest} characters would take {takes} bytes")


def _cast(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    import numpy as np

    if array.dtype.kind == "O":
        raise _no_array("the values have no common number type")
    if array.size == 0 or (np.can_cast(array.dtype, dtype, "same_kind") and dtype.kind in "fc"):
        return array.astype(dtype)
    try:
        with np.errstate(all="ignore"):
            cast = array.astype(dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise _no_array(str(error)) from None
    if not np.array_equal(cast, array):
        raise PydanticCustomError(
            "array_dtype",
            "Values of dtype {got} do not all fit into {expected}",
            {"got": str(array.dtype), "expected": str(dtype)},
        )
    return cast


def _plain(array: np.ndarray) -> np.ndarray:
    if not _is_plain(array.dtype):
        raise _no_array(f"dtype {array.dtype} is no plain data")
    return array


def _is_plain(dtype: np.dtype) -> bool:
    return dtype.kind in PLAIN_KINDS and not dtype.hasobject


def _is_listed(dtype: Any) -> bool:
    import numpy as np

    return dtype is None or np.dtype(dtype).kind in LISTED_KINDS


def _no_array(why: str) -> PydanticCustomError:
    return PydanticCustomError("array", "Expected an array: {why}", {"why": why})


def _from_object(value: Mapping[str, Any]) -> np.ndarray:
    try:
        dtype, shape, data = value["dtype"], value["shape"], value["data"]
    except KeyError as error:
        raise _no_array(f"an object with dtype, shape and data; {error} is missing") from None
    return _view(_from_base64(data), dtype, shape)


def as_base64(array: Any) -> dict[str, Any]:
    """Convert an array to a JSON object with dtype, shape and base64 data.

    Raises:
        ValueError: The dtype is not plain data.
    """
    _check_plain(array.dtype)
    data = base64.b64encode(_contiguous(array)).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def from_base64(value: Mapping[str, Any]) -> np.ndarray:
    """Read an array from the object that `as_base64` writes.

    Raises:
        ValueError: The object is malformed.
    """
    try:
        return _from_object(value)
    except PydanticCustomError as error:
        raise ValueError(str(error)) from None


def number_of(value: Any) -> Any:
    """Convert a NumPy scalar to a number, and a deque to a list; a `fallback` for Pydantic.

    Raises:
        TypeError: The value is of another type.
    """
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    if isinstance(value, deque):  # Pydantic before 2.14 cannot serialize it
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


_TOKEN = os.urandom(8).hex()  # random, so that no text in the data can equal a mark


class Kept:
    """Arrays and bytes that a binary codec keeps aside while Pydantic serializes the other values.

    An instance is Pydantic's serialization context. Fields that hold arrays or bytes `keep` their
    value and write a mark in its place, which `put_back` replaces.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def keep(self, value: Any) -> str:
        """Keep a value, and return the mark for the value's place."""
        mark = f"\0{_TOKEN}{len(self._kept)}\0"
        self._kept[mark] = value
        return mark

    def fallback(self, value: Any) -> Any:
        """Handle NumPy arrays and numbers in undeclared fields, which JSON cannot express."""
        if type(value).__module__ == "numpy" and getattr(value, "ndim", None):
            return self.keep(value)
        return number_of(value)

    def put_back(self, value: Any) -> Any:
        """Return the value with the kept arrays and bytes in place of the marks."""
        if not self._kept:
            return value
        kind = type(value)
        if kind is str:
            return self._kept.get(value, value)
        if kind is dict:
            return {name: self.put_back(item) for name, item in value.items()}
        if kind is list:
            return [self.put_back(item) for item in value]
        return value


# Pydantic does not validate defaults, so a field ``frame: NDArray = None`` may hold None.


def _writer(as_json: Callable[[Any], Any]) -> Callable[[Any, core_schema.SerializationInfo], Any]:
    def write(value: Any, info: core_schema.SerializationInfo) -> Any:
        if value is None:
            return None
        return info.context.keep(value) if type(info.context) is Kept else as_json(value)

    return write


_write_lists = _writer(lambda a: a.tolist() if _is_listed(a.dtype) else as_base64(a))
_write_base64 = _writer(as_base64)
_write_text = _writer(lambda data: base64.b64encode(data).decode())
_WRITERS = (_write_lists, _write_base64, _write_text)


@once_per_class
def holds_arrays(cls: type[BaseModel]) -> bool:
    """Return whether a model, or a nested model, has fields declared with `Array` or `Blob`."""
    return _has_writers(cls.__pydantic_core_schema__)


def is_written_by_arrays(schema: Mapping[str, Any]) -> bool:
    """Return whether a core schema is that of an `Array` or a `Blob`."""
    return schema.get("serialization", {}).get("function") in _WRITERS


def _has_writers(schema: Any) -> bool:
    if isinstance(schema, dict):
        if schema.get("function") in _WRITERS:
            return True
        return any(map(_has_writers, schema.values()))
    return isinstance(schema, list | tuple) and any(map(_has_writers, schema))


def _contiguous(array: Any) -> Any:
    import numpy as np

    # Viewed as bytes, since some dtypes (datetime64) do not support the buffer protocol.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.nbytes else b""


# The dtypes that a peer may name: numbers, times, and texts and bytes of a fixed size. Excluded are
# objects, which are pointers, and structures, whose field names are not sent.
_DTYPE = re.compile(
    r"[<>=|]?[?biufcSUmMV]\d{0,9}(\[\d{0,9}[A-Za-z\u03bc]{1,7}(/\d{1,9})?\])?"
    r"|bool|u?int\d{1,2}|(float|complex)\d{2,3}|(datetime|timedelta)64(\[\d{0,9}[A-Za-z]{1,7}\])?"
)
MAX_AXES = 64  # of NumPy 2
# Maximum number of rows of an array without elements: in nested lists each row is an object.
MAX_EMPTY_ROWS = 2**16


def _view(data: Any, dtype: Any, shape: Any) -> np.ndarray:
    """Return an array that is a view of `data`, which must have exactly the array's bytes.

    So a message cannot make this process allocate memory beyond the message's own size.
    """
    import numpy as np

    try:
        if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
            raise ValueError(f"{dtype!r:.80} is no dtype that an array of a message may have")
        if not isinstance(shape, list | tuple) or len(shape) > MAX_AXES:
            raise ValueError(f"its shape is no list of up to {MAX_AXES} lengths")
        kind, axes = np.dtype(dtype), tuple(operator.index(n) for n in shape)
        if min(axes, default=0) < 0 or not kind.itemsize:
            raise ValueError(f"shape {axes}, elements of {kind.itemsize} bytes")
        wanted = math.prod(axes) * kind.itemsize
        if wanted != len(data):
            raise ValueError(f"shape {axes} of {kind} takes {wanted} bytes, not {len(data)}")
        if wanted:
            return np.frombuffer(data, kind).reshape(axes)
        if math.prod(axes[: axes.index(0)]) > MAX_EMPTY_ROWS:
            raise ValueError(f"shape {axes} has more than {MAX_EMPTY_ROWS} rows without elements")
        return np.empty(axes, kind)
    except (ValueError, TypeError, OverflowError) as error:
        raise _no_array(str(error)) from None


# ------------------------------------------------------------------ arrays as bytes


def _check_plain(dtype: np.dtype[Any]) -> None:
    if not _is_plain(dtype):
        raise ValueError(f"an array of dtype {dtype} cannot be sent to another process")


def pack_array(array: np.ndarray) -> bytes:
    """Pack an array: the dtype (`numpy.dtype.str`), the shape, and the elements in C order.

    Raises:
        ValueError: The dtype is not plain data.
    """
    head = _head_of(array.dtype, array.shape)
    if array.nbytes <= SMALL:  # copying is faster than a memory view
        return head + array.tobytes()
    return b"".join((head, _contiguous(array)))


@lru_cache(maxsize=1024)
def _head_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    _check_plain(dtype)
    name = dtype.str.encode()
    return struct.pack(f"<BB{len(name)}s{len(shape)}Q", len(shape), len(name), name, *shape)


def unpack_array(data: memoryview) -> np.ndarray:
    """Read an array that `pack_array` packed; the array is a view of `data`, not a copy.

    Raises:
        ValueError: The bytes are malformed.
    """
    try:
        ndim, length = data[0], data[1]
        begin = 2 + length + 8 * ndim
        (dtype, *shape) = struct.unpack(f"<{length}s{ndim}Q", data[2:begin])
        return _view(data[begin:], dtype.decode("ascii"), shape)
    except (IndexError, struct.error, UnicodeDecodeError, PydanticCustomError) as error:
        raise ValueError(f"this is no array: {error}") from None


# ------------------------------------------------------------------ arrays as pictures

_COLOURS = {1: 0, 3: 2, 4: 6}  # PNG's colour types, by channels (RFC 2083, section 4.1.1)


def _channels(array: Any) -> int:
    shape: Any = getattr(array, "shape", ())
    return shape[2] if len(shape) == 3 else int(len(shape) == 2)


def is_pixels(array: Any) -> TypeIs[np.ndarray]:
    """Return whether a value is an array of pixels.

    An array of pixels is uint8 and not empty. The shape is (height, width), which is gray, or
    (height, width, channels) with 1 (gray), 3 (RGB) or 4 (RGBA) channels.
    """
    return (
        type(array).__module__.partition(".")[0] == "numpy"
        and str(getattr(array, "dtype", "")) == "uint8"
        and _channels(array) in _COLOURS
        and 0 not in array.shape
    )


def write_png(pixels: np.ndarray) -> bytes:
    """Write an array of pixels as PNG (RFC 2083).

    Raises:
        ValueError: The array is not one of pixels; see `is_pixels`.
    """
    if not is_pixels(pixels):
        raise ValueError(f"an array of {pixels.dtype}, shaped {pixels.shape}, is no picture")
    height, width, channels = pixels.shape[0], pixels.shape[1], _channels(pixels)
    row, data = width * channels, pixels.tobytes()
    lines = b"".join(b"\0" + data[start : start + row] for start in range(0, len(data), row))
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


# ------------------------------------------------------------------ schemas


def _number_schema(dtype: Any) -> dict[str, Any]:
    import numpy as np

    if dtype is None:
        return {}
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return {"type": "boolean"}
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return {"type": "integer", "minimum": int(limits.min), "maximum": int(limits.max)}
    return {"type": "number"} if kind.kind == "f" else {}


def _nested(shape: tuple[int | None, ...] | None, item: dict[str, Any]) -> dict[str, Any]:
    if shape is None:
        return {"type": "array"}
    described = item
    for length in reversed(shape):
        described = {"type": "array", "items": described}
        if length is not None:
            described |= {"minItems": length, "maxItems": length}
    return described
