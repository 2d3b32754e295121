from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import BaseModel, Field

from openenv.errors import InvalidReturnError
from openenv.settings import ServerMode
from openenv.tools import Image, render_tools, tool
from openenv.tools.functions import (
    FunctionTool,
    InvalidToolArguments,
    ToolMark,
    check_name,
    declared_tools,
)
from openenv.tools.results import NOT_FINITE, encode_png, from_dump, to_content, to_dump
from openenv.tools.types import Tool


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Span:
    low: float
    high: float


def call(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    made = FunctionTool.of(function)
    result: dict[str, Any] = asyncio.run(made.call(None, arguments, inline=True))
    return result


# ------------------------------------------------------------------ what a signature says


def test_a_signature_is_the_schema() -> None:
    def search(
        query: str,
        limit: Annotated[int, Field(ge=1, le=50, description="At most so many.")] = 10,
        kind: Literal["web", "news"] = "web",
        near: Point | None = None,
    ) -> list[Point]:
        """Search for something.

        Args:
            query: What to look for,
                in words.
            limit: Not this, the annotation says it.

        Returns:
            The places.
        """
        return [Point(x=limit)]

    told = FunctionTool.of(search).description
    assert told["name"] == "search"
    assert told["description"] == "Search for something.\n\nReturns:\n    The places."
    properties = told["inputSchema"]["properties"]
    assert properties["query"] == {"type": "string", "description": "What to look for, in words."}
    assert properties["limit"]["description"] == "At most so many."
    assert properties["limit"]["maximum"] == 50
    assert properties["kind"]["enum"] == ["web", "news"]
    assert told["inputSchema"]["required"] == ["query"]
    assert told["inputSchema"]["additionalProperties"] is False
    assert told["outputSchema"]["properties"]["result"]["type"] == "array"
    assert told["outputSchema"]["x-fastmcp-wrap-result"] is True
    assert "Point" in told["outputSchema"]["$defs"]


def test_names_that_models_have_too_are_fine() -> None:
    def odd(copy: str, schema: int, model_config: bool, _hidden: float = 1.5) -> dict[str, Any]:
        return {"copy": copy, "schema": schema, "model_config": model_config, "_hidden": _hidden}

    schema = FunctionTool.of(odd).description["inputSchema"]
    assert list(schema["properties"]) == ["copy", "schema", "model_config", "_hidden"]
    result = call(odd, copy="c", schema=1, model_config=True)
    assert result["structuredContent"] == {
        "copy": "c",
        "schema": 1,
        "model_config": True,
        "_hidden": 1.5,
    }


@pytest.mark.parametrize("name", ["reset", "step", "state", "close"])
def test_what_controls_the_simulation_is_no_tool(name: str) -> None:
    with pytest.raises(ValueError, match=rf"no tool may be called '{name}'.*no agent may"):
        check_name(name)


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 129, "a/b"])
def test_a_name_that_mcp_forbids_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"letters, digits"):
        FunctionTool.of(lambda: None, ToolMark(name=name or " "))


def test_arguments_that_no_object_can_carry_are_refused() -> None:
    def star(*values: int) -> None: ...
    def stars(**values: int) -> None: ...
    def first(value: int, /) -> None: ...

    for function in (star, first):
        with pytest.raises(TypeError, match="arguments are passed by name"):
            FunctionTool.of(function)
    with pytest.raises(TypeError, match="arguments must be declared"):
        FunctionTool.of(stars)


def test_marks_are_inherited_and_hidden_by_name() -> None:
    class Base:
        @tool
        def one(self) -> str:
            return "base"

        @tool(name="two", mode="production", annotations={"readOnlyHint": True}, title="Zwei")
        def second(self) -> str:
            return "two"

        @tool
        @staticmethod
        def three() -> str:
            return "three"

    class Derived(Base):
        @tool
        def one(self) -> str:
            return "derived"

    tools = {one.name: one for one in declared_tools(Derived)}
    assert list(tools) == ["one", "two", "three"]
    assert asyncio.run(tools["one"].call(Derived(), {}, inline=True))["content"][0]["text"] == (
        "derived"
    )
    assert asyncio.run(tools["three"].call(Derived(), {}, inline=False))["isError"] is False
    assert tools["two"].description["annotations"] == {"readOnlyHint": True}
    assert tools["two"].description["title"] == "Zwei"
    assert tools["two"].is_offered_in(ServerMode.PRODUCTION)
    assert not tools["two"].is_offered_in(ServerMode.SIMULATION)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown mode 'testing'"):
        tool(mode="testing")  # type: ignore[call-overload]


# ------------------------------------------------------------------ calling


def test_wrong_arguments_are_named() -> None:
    def add(a: float, b: float) -> float:
        return a + b

    with pytest.raises(InvalidToolArguments, match=r"add: a: .*valid number.*\(got 'x'\).*b: .*re"):
        call(add, a="x")
    with pytest.raises(InvalidToolArguments, match=r"c: Extra inputs.*\(got 3\)"):
        call(add, a=1, b=2, c=3)


def test_models_arrive_as_models() -> None:
    def norm(point: Point, span: Span) -> float:
        assert isinstance(point, Point) and isinstance(span, Span)
        return point.x**2 + span.high

    result = call(norm, point={"x": 3}, span={"low": 0, "high": 1})
    assert result["structuredContent"] == {"result": 10.0}


@pytest.mark.parametrize(
    ("value", "annotation", "content", "structured"),
    [
        ("hi", str, ["hi"], {"result": "hi"}),
        (None, None, [], None),
        ({"a": 1}, dict[str, int], ['{"a":1}'], {"a": 1}),
        (Point(x=1), Point, ['{"x":1,"y":0}'], {"x": 1, "y": 0}),
        (Span(1, 2), Span, ['{"low":1,"high":2}'], {"low": 1, "high": 2}),
        ([1, 2], list[int], ["[1,2]"], {"result": [1, 2]}),
        ({"a": 1}, Any, ['{"a":1}'], {"a": 1}),
        (3, Any, ["3"], None),
    ],
)
def test_values_become_content(
    value: Any, annotation: Any, content: list[str], structured: Any
) -> None:
    def give() -> Any:
        return value

    give.__annotations__["return"] = annotation
    result = call(give)
    assert [block["text"] for block in result["content"]] == content
    assert result.get("structuredContent") == structured


def test_nan_and_infinity_are_told_and_not_nulled() -> None:
    nan, infinity = float("nan"), float("inf")

    def mean() -> float:
        return nan

    def means() -> dict[str, list[float]]:
        return {"means": [1.0, nan, -infinity]}

    def untyped():  # type: ignore[no-untyped-def]
        return {"mean": nan}

    for function, text, structured in (
        (mean, "NaN", {"result": "NaN"}),
        (means, '{"means":[1.0,NaN,-Infinity]}', {"means": [1.0, "NaN", "-Infinity"]}),
        (untyped, '{"mean":NaN}', {"mean": "NaN"}),
    ):
        made = FunctionTool.of(function)
        result = asyncio.run(made.call(None, {}, inline=True))
        assert result["content"][0]["text"] == text
        assert result["structuredContent"] == structured
        assert result["_meta"][NOT_FINITE] is True


def test_numbers_of_numpy_are_returned_as_numbers() -> None:
    three: Any = np.int64(3)
    half: Any = np.float32(0.5)

    def count() -> int:
        return three  # type: ignore[no-any-return]

    def mean() -> dict[str, float]:
        return {"mean": half}

    def untyped():  # type: ignore[no-untyped-def]
        return {"found": [np.bool_(True), (np.uint8(1),)]}

    def bare():  # type: ignore[no-untyped-def]
        return np.int64(3)

    for function, text, structured in (
        (count, "3", {"result": 3}),
        (mean, '{"mean":0.5}', {"mean": 0.5}),
        (untyped, '{"found":[true,[1]]}', {"found": [True, [1]]}),
        (bare, "3", None),
    ):
        result = asyncio.run(FunctionTool.of(function).call(None, {}, inline=True))
        assert result["content"][0]["text"] == text
        assert result.get("structuredContent") == structured


def test_a_value_that_the_annotation_forbids_is_an_error() -> None:
    def lie() -> int:
        return "three"  # type: ignore[return-value]

    with pytest.raises(InvalidReturnError, match="lie returned a value that violates"):
        call(lie)


# ------------------------------------------------------------------ pictures


def pixels(data: str) -> bytes:
    """The lines of a PNG, each with its filter byte."""
    png = base64.b64decode(data)
    start = png.index(b"IDAT") + 4
    length = int.from_bytes(png[start - 8 : start - 4], "big")
    return zlib.decompress(png[start : start + length])


def test_pictures_become_image_blocks() -> None:
    frame = np.arange(8 * 9 * 3, dtype=np.uint8).reshape(8, 9, 3)
    (block,) = to_content(frame)
    assert block["mimeType"] == "image/png"
    rows = pixels(block["data"])
    assert rows == b"".join(b"\0" + line.tobytes() for line in frame)
    (given,) = to_content(Image(b"abc", "image/webp"))
    assert given == {"type": "image", "data": "YWJj", "mimeType": "image/webp"}
    text, picture = to_content(["look:", Image(b"abc")])
    assert (text["text"], picture["type"]) == ("look:", "image")


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((8, 8), np.float32),
        np.zeros((7, 8), np.uint8),
        np.zeros((8, 8, 2), np.uint8),
        np.zeros(64, np.uint8),
    ],
)
def test_an_array_of_anything_else_is_no_picture(array: Any) -> None:
    assert encode_png(array) is None


# ------------------------------------------------------------------ forms of results


def test_a_result_survives_its_dump() -> None:
    result = {
        "content": [
            {"type": "text", "text": "hi", "annotations": {"audience": ["user"]}},
            {"type": "image", "data": "YWJj", "mimeType": "image/png", "_meta": {"a": 1}},
        ],
        "structuredContent": {"result": [1]},
        "_meta": {"fastmcp": {"wrap_result": True}},
        "isError": True,
    }
    dump = to_dump(result)
    assert dump["data"] == [1]
    assert dump["content"][1]["meta"] == {"a": 1}
    assert from_dump(dump) == result
    assert from_dump({"anything": 1})["content"][0]["text"] == '{"anything":1}'


# ------------------------------------------------------------------ for models' interfaces

TOOL = Tool(name="add", description="Add.", input_schema={"properties": {"a": {"type": "number"}}})


@pytest.mark.parametrize(
    "given", [TOOL, {"name": "add", "description": "Add.", "inputSchema": TOOL.input_schema}]
)
def test_tools_are_written_for_each_interface(given: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "number"}}}
    function = {"name": "add", "description": "Add.", "parameters": schema}
    assert render_tools([given]) == [{"type": "function", "function": function}]
    assert render_tools([given], "openai-responses") == [{"type": "function", **function}]
    assert render_tools([given], "anthropic") == [
        {"name": "add", "description": "Add.", "input_schema": schema}
    ]
    assert render_tools([given], "mcp") == [
        {"name": "add", "description": "Add.", "inputSchema": schema}
    ]


def test_what_an_interface_does_not_take_is_refused() -> None:
    with pytest.raises(ValueError, match=r"accept a tool named 'a.b'"):
        render_tools([{"name": "a.b"}], "openai")
    with pytest.raises(ValueError, match="unknown format 'gemini'"):
        render_tools([TOOL], "gemini")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a tool"):
        render_tools([{"function": {}}])
