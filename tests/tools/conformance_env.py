"""What the official conformance suite asks of a server, as an environment.

Tools are methods where a method can be one; what takes more of MCP (resources, prompts, progress)
is on a server of the official SDK, whose tools, resources and prompts are the environment's.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp_types import (
    AudioContent,
    Completion,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)
from pydantic import Field

from openenv.server.app import create_app
from openenv.tools import Image, MCPEnvironment, tool

# A red dot, and a sound of no length.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
PICTURE = ImageContent(type="image", data=base64.b64encode(PNG).decode(), mime_type="image/png")
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

# A schema with the keywords of JSON Schema 2020-12 that have to arrive as they are.
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

STEP_S = 0.05  # between the reports of a tool


def resource(uri: str, text: str, mime_type: str = "text/plain") -> EmbeddedResource:
    contents = TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return EmbeddedResource(type="resource", resource=contents)


def words(text: str) -> UserMessage:
    return UserMessage(TextContent(type="text", text=text))


def make_server() -> MCPServer[Any]:
    """What the suite asks for beyond plain tools."""
    server: MCPServer[Any] = MCPServer("conformance")

    @server.tool()
    async def test_tool_with_progress(ctx: Context) -> str:
        """Tell how far it is."""
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100, f"{done} of 100")
            await asyncio.sleep(STEP_S)
        return "done"

    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        """A text."""
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        """A picture."""
        return PNG

    @server.resource("test://watched-resource", mime_type="text/plain")
    def watched() -> str:
        """A text that may be watched."""
        return "Watched resource content"

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def of_template(id: str) -> str:
        """A text for each id."""
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})

    @server.prompt()
    def test_simple_prompt() -> list[UserMessage]:
        """A prompt."""
        return [words("This is a simple prompt for testing.")]

    @server.prompt()
    def test_prompt_with_arguments(
        arg1: Annotated[str, Field(description="The first")],
        arg2: Annotated[str, Field(description="The second")],
    ) -> list[UserMessage]:
        """A prompt with arguments."""
        return [words(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")]

    @server.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
        """A prompt that holds a resource."""
        embedded = resource(resourceUri, "Embedded resource content for testing.")
        return [UserMessage(embedded), words("Please process the embedded resource above.")]

    @server.prompt()
    def test_prompt_with_image() -> list[UserMessage]:
        """A prompt that holds a picture."""
        return [UserMessage(PICTURE), words("Please analyze the image above.")]

    @server.completion()  # type: ignore[no-untyped-call, untyped-decorator]
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        known = [one for one in ("paris", "park", "party") if one.startswith(argument.value)]
        return Completion(values=known, total=len(known), has_more=False)

    return server


class ConformanceEnvironment(MCPEnvironment):
    """What the conformance suite asks for."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__(make_server())
        self.made = 0

    async def mcp_list_tools(self) -> list[dict[str, Any]]:
        described = "A tool whose schema has more than Python's annotations say."
        rich = {"name": "json_schema_2020_12_tool", "description": described, "inputSchema": SCHEMA}
        return [*await super().mcp_list_tools(), rich]

    @tool
    def test_simple_text(self) -> str:
        """Return a text."""
        return "This is a simple text response for testing."

    @tool
    def test_image_content(self) -> Image:
        """Return a picture."""
        return Image(PNG)

    @tool
    def test_audio_content(self) -> Any:
        """Return a sound."""
        return AudioContent(type="audio", data=WAV, mime_type="audio/wav")

    @tool
    def test_embedded_resource(self) -> Any:
        """Return a resource."""
        return resource("test://embedded-resource", "This is an embedded resource content.")

    @tool
    def test_multiple_content_types(self) -> Any:
        """Return a text, a picture and a resource."""
        data = json.dumps({"test": "data", "value": 123})
        mixed = resource("test://mixed-content-resource", data, "application/json")
        return ["Multiple content types test:", Image(PNG), mixed]

    @tool
    def test_custom_headers(
        self, region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = ""
    ) -> str:
        """Return an argument that clients repeat in a header."""
        return region

    @tool
    def test_streaming_elicitation(self) -> str:
        """Answer; it asks its client nothing."""
        return "Nothing is asked."

    @tool
    def test_logging_tool(self) -> str:
        """Answer; it logs nothing to its client."""
        return "Nothing is logged."

    @tool
    def test_trigger_tool_change(self) -> str:
        """Have one tool more."""

        def test_another_tool() -> str:
            """Do nothing."""
            return ""

        test_another_tool.__name__ += self._number()
        self.tool()(test_another_tool)
        return "There is another tool."

    @tool
    def test_trigger_prompt_change(self) -> str:
        """Have one prompt more."""

        @self.mcp_server.prompt("test_another_prompt" + self._number())  # type: ignore[untyped-decorator]
        def test_another_prompt() -> str:
            """Another prompt."""
            return ""

        return "There is another prompt."

    def _number(self) -> str:
        self.made += 1
        return f"_{self.made}"

    @tool
    def test_error_handling(self) -> str:
        """Fail."""
        raise RuntimeError("This tool intentionally returns an error for testing")


app = create_app(ConformanceEnvironment, max_concurrent_envs=64)
