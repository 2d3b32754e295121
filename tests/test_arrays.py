"""Fields that hold arrays and bytes: what they take, how they travel, what they say is wrong."""

from __future__ import annotations

import base64
import contextlib
import json
import struct
import subprocess
import sys
import urllib.request
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError
from support.amounts import examples

from openenv import Action, EnvClient, Environment, Observation, State, create_app
from openenv.arrays import Array, Blob, NDArray, pack_array, unpack_array
from openenv.protocol.messages import Transition
from openenv.protocol.v1.codec import codec_named

STRUCTURE = np.dtype([("id", "<i4"), ("weight", "<f8")])

SAMPLES = {
    "bool": np.array([True, False]),
    "int8": np.array([-128, 127], "int8"),
    "uint8": np.arange(6, dtype="uint8").reshape(2, 3),
    "int64": np.array([-(2**63), 2**63 - 1]),
    "uint64": np.array([2**64 - 1], "uint64"),
    "float16": np.array([0.5, np.inf], "float16"),
    "float32": np.array([[0.1], [-0.0]], "float32"),
    "float64": np.array([np.nan, 1e300, -np.inf]),
    "complex64": np.array([1 + 2j], "complex64"),
    "big-endian": np.array([1, 2], ">i4"),
    "text": np.array(["a", "déjà"]),
    "bytes": np.array([b"a", b"xyz"]),
    "datetime64": np.array(["2026-01-02", "NaT"], "datetime64[s]"),
    "timedelta64": np.array([1, -2], "timedelta64[ms]"),
    "void": np.array([b"ab"], "V2"),
    "empty": np.zeros((0, 3), "float32"),
    "no axis": np.array(5, "int16"),
    "many axes": np.zeros((1,) * 20),
    "transposed": np.arange(6).reshape(2, 3).T,
    "strided": np.arange(10)[::-3],
    "broadcast": np.broadcast_to(np.float32(1.5), (2, 2)),
    "read-only": np.frombuffer(b"\1\2", "uint8"),
    "empty text": np.array(["", ""]),
}


def assert_equal(one: Any, other: Any) -> None:
    assert type(one) is type(other) is np.ndarray
    assert one.dtype == other.dtype and one.shape == other.shape
    assert one.tobytes() == other.tobytes()


# ------------------------------------------------------------------ as bytes


@pytest.mark.parametrize("name", SAMPLES)
def test_an_array_comes_back_from_its_bytes(name: str) -> None:
    array = SAMPLES[name]
    assert_equal(unpack_array(memoryview(pack_array(array))), array)


@examples(200)
@given(
    st.sampled_from("?bBhHiIlLqQefdFDmM"),
    st.lists(st.integers(0, 4), max_size=4),
    st.binary(max_size=64),
    st.booleans(),
)
def test_any_array_comes_back_from_its_bytes(
    kind: str, shape: list[int], data: bytes, turned: bool
) -> None:
    dtype = np.dtype(kind + ("8[s]" if kind in "mM" else ""))
    array = np.resize(np.frombuffer(data.ljust(64, b"\1"), "u1").copy().view(dtype), shape)
    array = array.T if turned else array
    assert_equal(unpack_array(memoryview(pack_array(array))), array)


@examples(300)
@given(st.binary(max_size=60), st.integers(0, 60))
def test_any_bytes_are_an_array_or_a_value_error(data: bytes, cut: int) -> None:
    for one in (data, pack_array(SAMPLES["uint8"])[:cut] + data):
        with contextlib.suppress(ValueError):
            assert type(unpack_array(memoryview(one))) is np.ndarray


def test_the_array_is_a_view_of_the_frame_and_can_be_written_to() -> None:
    codec = codec_named("openenv.v1.msgpack")
    frame = bytearray(codec.answer("state", 0, 1, codec.encode_data({"array": np.zeros(1000)})))
    [answer] = codec.decode_answers(frame)
    array = answer.data["array"]
    array[3] = 1.5
    assert np.array(1.5).tobytes() in frame, "no copy was made"


@pytest.mark.parametrize(
    "array", [np.array([object()]), np.array([(1, None)], [("a", "i4"), ("b", "O")])]
)
def test_pointers_are_never_sent(array: Any) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        pack_array(array)
    for field in (Array(), Array(text="base64")):
        with pytest.raises(ValidationError, match="no plain data"):
            TypeAdapter(Annotated[Any, field]).validate_python(array)
    with pytest.raises(TypeError, match="cannot be sent"):
        TypeAdapter(Annotated[np.ndarray, Array(array.dtype)])


# ------------------------------------------------------------------ as a field


@pytest.mark.parametrize("text", ["list", "base64"])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_field_comes_back_from_json(name: str, text: Any) -> None:
    array = SAMPLES[name]
    adapter = TypeAdapter(Annotated[np.ndarray, Array(array.dtype, array.shape, text=text)])
    back = adapter.validate_json(adapter.dump_json(array))
    if text == "list" and array.dtype.kind == "f" and not np.isfinite(array).all():
        assert np.isnan(back[~np.isfinite(array)]).all(), "JSON has null only"
        assert np.array_equal(back[np.isfinite(array)], array[np.isfinite(array)])
    else:
        assert_equal(back, array)


def test_a_structured_array_keeps_its_fields() -> None:
    array = np.array([(1, 0.5), (2, 1.5)], STRUCTURE)
    adapter = TypeAdapter(Annotated[np.ndarray, Array(STRUCTURE, (None,))])
    assert_equal(adapter.validate_python(unpack_array(memoryview(pack_array(array)))), array)
    assert_equal(adapter.validate_json(adapter.dump_json(array)), array)


TAKEN: list[tuple[Any, Any, Any]] = [
    ("uint8", [1, 255], [1, 255]),
    ("uint8", [[1.0], [2.0]], [[1], [2]]),
    ("float32", [1, 0.1], np.array([1, 0.1], "float32")),
    ("float32", [1, None], [1, np.nan]),
    ("float16", np.array([0.1]), np.array([0.1], "float16")),
    ("int64", range(3), [0, 1, 2]),
    ("bool", [0, 1], [False, True]),
    ("int32", [], np.zeros(0, "int32")),
    ("<i4", np.array([1, 2], ">i4"), [1, 2]),
    ("float64", (1, 2), [1.0, 2.0]),
    (None, [1, 2], [1, 2]),
    (None, ["a"], ["a"]),
    ("U3", ["abc", "d"], ["abc", "d"]),
    ("complex64", [1, 2], [1, 2]),
    ("float64", np.float32(0.5), 0.5),
]


@pytest.mark.parametrize(
    ("dtype", "value", "expected"), TAKEN, ids=lambda value: type(value).__name__
)
def test_what_loses_nothing_is_taken(dtype: Any, value: Any, expected: Any) -> None:
    array = TypeAdapter(Annotated[np.ndarray, Array(dtype)]).validate_python(value)
    assert type(array) is np.ndarray and np.array_equal(
        array, np.array(expected), equal_nan=array.dtype.kind == "f"
    )
    if dtype is not None:
        assert array.dtype == np.dtype(dtype)


REFUSED: list[tuple[Any, Any, Any, str]] = [
    ("uint8", None, [256], "uint8"),
    ("uint8", None, [-1], "uint8"),
    ("uint8", None, [0.5], "uint8"),
    ("int64", None, [float("nan")], "int64"),
    ("int8", None, ["x"], "array"),
    ("bool", None, [2], "bool"),
    ("U1", None, ["ab"], "U1"),
    ("uint8", None, [1, None], "array"),
    ("uint8", None, [[1], [2, 3]], "array"),
    ("uint8", None, object(), "array"),
    ("uint8", None, {"dtype": "|u1", "data": ""}, "shape"),
    ("uint8", None, {"dtype": "|u1", "shape": [2], "data": "AA=="}, "2 bytes"),
    ("uint8", None, {"dtype": "|u1", "shape": [-1], "data": ""}, "shape"),
    ("uint8", None, {"dtype": "|O", "shape": [1], "data": "AAAAAAAAAAA="}, "array"),
    ("uint8", None, {"dtype": "nonsense", "shape": [1], "data": "AA=="}, "nonsense"),
    ("uint8", None, {"dtype": "|u1", "shape": [1], "data": "!"}, "base64"),
    ("uint8", None, {"dtype": "|u1", "shape": 3, "data": "AA=="}, "array"),
    ("uint8", None, {"dtype": "|u1", "shape": [1], "data": 3}, "base64"),
    ("uint8", (2, 2), np.zeros((2, 3), "uint8"), r"\(2, 2\).*\(2, 3\)"),
    ("uint8", (None, 2), [1, 2], r"\(None, 2\).*\(2,\)"),
    ("uint8", (), [1], r"\(\)"),
    (None, None, {1, 2}, "array"),
]


@pytest.mark.parametrize(
    ("dtype", "shape", "value", "words"), REFUSED, ids=lambda value: type(value).__name__
)
def test_what_does_not_fit_is_refused_in_words(
    dtype: Any, shape: Any, value: Any, words: str
) -> None:
    adapter = TypeAdapter(Annotated[np.ndarray, Array(dtype, shape)])
    with pytest.raises(ValidationError, match=f"(?s){words}"):
        adapter.validate_python(value)


@pytest.mark.parametrize("shape", [(None, 3), (2, None), (2, 3), (None, None), None])
def test_an_axis_may_have_any_length(shape: Any) -> None:
    adapter = TypeAdapter(Annotated[np.ndarray, Array("uint8", shape)])
    assert adapter.validate_python(SAMPLES["uint8"]) is SAMPLES["uint8"]


def test_bytes_travel_as_base64() -> None:
    adapter = TypeAdapter(Annotated[bytes, Blob("image/png")])
    assert adapter.dump_json(b"\xff\x00") == b'"/wA="'
    assert adapter.validate_json(b'"/wA="') == b"\xff\x00"
    assert adapter.validate_python(bytearray(b"x")) == adapter.validate_python(b"x") == b"x"
    for wrong in ("!", 3, None):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)
    assert adapter.json_schema() == {
        "type": "string",
        "contentEncoding": "base64",
        "contentMediaType": "image/png",
    }


# ------------------------------------------------------------------ what it says of itself


def test_a_schema_describes_the_array() -> None:
    def schema(field: Array) -> Any:
        return TypeAdapter(Annotated[np.ndarray, field]).json_schema()

    listed = schema(Array("uint8", (2, None)))
    assert (listed["dtype"], listed["shape"]) == ("uint8", [2, None])
    assert (listed["minItems"], listed["maxItems"]) == (2, 2)
    assert listed["items"] == {
        "type": "array",
        "items": {"type": "integer", "minimum": 0, "maximum": 255},
    }
    assert schema(Array("bool", (1,)))["items"] == {"type": "boolean"}
    assert schema(Array("float32"))["type"] == "array"
    for field in (Array("uint8", text="base64"), Array("complex64"), Array("datetime64[s]")):
        assert schema(field)["required"] == ["dtype", "shape", "data"]


def test_an_annotation_can_be_compared_and_read() -> None:
    assert Array("uint8", (1, 2)) == Array("uint8", [1, 2]) != Array("uint8")
    assert hash(Array("uint8")) == hash(Array("uint8"))
    assert repr(Array("uint8", (1, None))) == "Array('uint8', (1, None), text='list')"
    field: Any = NDArray
    assert field["uint8", (2,)].__metadata__ == (Array("uint8", (2,)),)


# ------------------------------------------------------------------ over a server


class Paint(Action):
    picture: Annotated[np.ndarray, Array("uint8", (2, 2))]


class Painted(Observation):
    picture: Annotated[np.ndarray, Array("uint8", (None, 2))]
    depth: Annotated[np.ndarray, Array("float32", text="base64")]
    file: Annotated[bytes, Blob("image/png")] = b""


class Painter(Environment[Paint, Painted, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def reset(self) -> Painted:  # type: ignore[override]
        depth = np.array([np.nan, np.inf])
        return Painted(picture=np.zeros((0, 2), "uint8"), depth=depth, file=b"\x89PNG")

    def step(self, action: Paint) -> Painted:  # type: ignore[override]
        return Painted(picture=action.picture[::-1], depth=action.picture / 255)


class PainterEnv(EnvClient[Paint, Painted, State]):
    """Its client."""


@pytest.mark.parametrize("version", ["0", "1"])
def test_arrays_travel_both_ways(serve: Any, monkeypatch: Any, version: str) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", version)
    picture = np.array([[1, 2], [3, 4]], "uint8")
    with PainterEnv(serve(create_app(Painter))) as env:
        first = env.reset().observation
        assert first.picture.shape == (0, 2) and first.file == b"\x89PNG"
        assert np.isnan(first.depth[0]) and np.isinf(first.depth[1])
        for action in (Paint(picture=picture), {"picture": picture.tolist()}):
            seen = env.step(action).observation  # type: ignore[arg-type]
            assert_equal(seen.picture, picture[::-1])
            assert_equal(seen.depth, (picture / 255).astype("float32"))
        seen.picture[0, 0] = 9
        with pytest.raises(RuntimeError, match="shape"):
            env.step({"picture": [1]})  # type: ignore[arg-type]


def test_a_server_tells_the_schema_of_its_arrays(serve: Any) -> None:
    with urllib.request.urlopen(serve(create_app(Painter)) + "/schema", timeout=5) as answer:
        schema = json.load(answer)
    assert schema["action"]["properties"]["picture"]["shape"] == [2, 2]
    assert schema["observation"]["properties"]["file"]["contentMediaType"] == "image/png"


def test_http_takes_and_gives_them_as_json(serve: Any) -> None:
    body = json.dumps({"action": {"picture": [[1, 2], [3, 4]]}}).encode()
    request = urllib.request.Request(
        serve(create_app(Painter)) + "/step", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        observation = json.load(answer)["observation"]
    assert observation["picture"] == [[3, 4], [1, 2]]
    assert len(base64.b64decode(observation["depth"]["data"])) == 16


def test_numpy_is_loaded_with_the_first_array_only() -> None:
    code = (
        "import sys, openenv, openenv.arrays, openenv.protocol.v1.codec, openenv.client.vector\n"
        "assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_no_text_is_taken_for_an_array() -> None:
    class Echo(Observation):
        said: str
        picture: Annotated[np.ndarray, Array("uint8")]
        more: Any = None

    codec = codec_named("openenv.v1.msgpack")
    texts = ["\0array 0\0", "\0array 1\0", "\x000\0"]
    for text in texts:
        echo = Echo(said=text, picture=np.ones(1, "uint8"), more=[text, np.arange(2)])
        data = codec.encode_data(Transition(echo))
        [answer] = codec.decode_answers(codec.answer("state", 0, 1, data))
        assert answer.data["observation"]["said"] == text
        assert answer.data["observation"]["more"][0] == text


def test_a_model_that_holds_none_is_written_without_numpy() -> None:
    class Plain(BaseModel):
        image: Annotated[bytes, Blob()] = b""

    assert Plain().model_dump_json() == '{"image":""}'
    data = codec_named("openenv.v1.json").encode_data(Transition(Observation()))
    assert json.loads(data)["observation"] == {"metadata": {}}


# ------------------------------------------------------------------ what no peer may have made


ANY: TypeAdapter[Any] = TypeAdapter(Annotated[Any, Array()])


def packed(dtype: str, shape: tuple[int, ...], data: bytes = b"") -> memoryview:
    head = struct.pack(
        f"<BB{len(dtype)}s{len(shape)}Q", len(shape), len(dtype), dtype.encode(), *shape
    )
    return memoryview(head + data)


@pytest.mark.parametrize(
    ("dtype", "shape", "data"),
    [
        ("S0", (1000,), b""),  # elements of no size: memory that nobody has written to
        ("U0", (2**27,), b""),
        ("V0", (10,), b""),
        ("S", (10,), b""),
        ("|u1", (2**40, 0), b""),  # as lists, more than there is room for
        ("|u1", (2**17, 0), b""),
        ("|u1", (3,), b"ab"),
        ("|u1", (2**63, 2**63), b""),
        ("O", (1,), b"12345678"),
        ("(1000000,)f8", (0,), b""),
        ("f4,f4", (1,), b"12345678"),
        ("f8, (9,)O", (0,), b""),
        ("u1" * 50, (0,), b""),
        ("<M8[1000000000000000000000000s]", (0,), b""),
        ("|u1", (1,) * 100, b"x"),
    ],
)
def test_an_array_of_a_message_is_made_of_its_bytes_alone(
    dtype: str, shape: tuple[int, ...], data: bytes
) -> None:
    with pytest.raises(ValueError, match="no array"):
        unpack_array(packed(dtype, shape, data))
    written = {"dtype": dtype, "shape": list(shape), "data": base64.b64encode(data).decode()}
    with pytest.raises(ValidationError):
        ANY.validate_python(written)


@pytest.mark.parametrize("shape", [5, "12", [1.5], ["1"], None, [-1], {"a": 1}])
def test_a_shape_is_a_list_of_lengths(shape: Any) -> None:
    with pytest.raises(ValidationError):
        ANY.validate_python({"dtype": "|u1", "shape": shape, "data": ""})


def test_texts_take_no_more_memory_than_a_few_times_what_they_are() -> None:
    """NumPy gives every text the room of the longest."""
    hostile = ["x" * 10**6, *[""] * 10**4]
    for dtype in (None, "U", "float32"):
        adapter: TypeAdapter[Any] = TypeAdapter(Annotated[Any, Array(dtype)])
        with pytest.raises(ValidationError):
            adapter.validate_python(hostile)
        with pytest.raises(ValidationError):
            adapter.validate_python([[hostile]])
    kept = ANY.validate_python(["a" * 100, *["b"] * 100])
    assert kept.shape == (101,)
