"""The interface of an environment to an agent: the schema of actions, and tools.

A server describes both at ``/schema``. A tool call is converted to an action: a `CallToolAction` if
the environment has tools, else the environment's own action.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openenv._internal.json import read_json
from openenv._internal.models import wire_schema
from openenv._internal.net.keys import key_headers
from openenv.client import codec
from openenv.client.client import EnvClient
from openenv.client.internals import internals
from openenv.client.schema import fetch_schema
from openenv.client.transports.asgi import request
from openenv.errors import ConnectError, NotSupported
from openenv.execution.spec import EnvironmentSpec, ToolSupport
from openenv.execution.tools import PICTURES, action_tools
from openenv.protocol.messages import MCPReply, Request
from openenv.reward import RewardSpec
from openenv.settings import api_key
from openenv.tools.types import CallToolAction, McpMethod

SCHEMA_TIMEOUT_S = 30.0
CALL = CallToolAction.model_fields["type"].default
OTHER_FIELDS = frozenset({"metadata"})
# Fields whose text is code, unless the schema declares a contentMediaType.
CODE_FIELDS = frozenset(
    {"bash", "cmd", "code", "command", "program", "python", "script", "source", "sql"}
)
# Schema keywords that restrict a text.
RESTRICTIONS = frozenset({"const", "enum", "format", "pattern"})


@dataclass(frozen=True)
class AgentTool:
    """A tool by which an agent acts.

    Attributes:
        fixed: Fields of the action that have only one possible value.
        is_call: True if the action is a call of this tool; False if the arguments are the action's
            fields.
    """

    name: str
    description: str = ""
    input_schema: dict[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    is_call: bool = False

    def action(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of the action for a call with these arguments."""
        if self.is_call:
            return {"type": CALL, "tool_name": self.name, "arguments": dict(arguments)}
        return {**arguments, **self.fixed}

    def as_tool(self) -> dict[str, Any]:
        """Return the tool in the format of MCP's tool lists."""
        schema = {"type": "object", "properties": {}, **self.input_schema}
        return {"name": self.name, "description": self.description, "inputSchema": schema}

    def as_function(self) -> dict[str, Any]:
        """Return the tool in the format of OpenAI's API, which chat templates read."""
        tool = self.as_tool()
        about = {key: tool[key] for key in ("name", "description")}
        return {"type": "function", "function": {**about, "parameters": tool["inputSchema"]}}

    @property
    def text_field(self) -> str | None:
        """The only required field if it is a text; None otherwise."""
        properties = self.input_schema.get("properties", {})
        required = self.input_schema.get("required") or list(properties)
        if len(required) != 1 or self.is_call:
            return None
        name = str(required[0])
        return name if properties.get(name, {}).get("type") == "string" else None


@dataclass(frozen=True)
class Interface:
    """The tools by which an agent acts in an environment, and what the agent may see.

    Attributes:
        action: The JSON schema of the actions; None if unknown.
        tools: The tools, at least one.
        visible: The observation fields that an agent may see; None if unknown.
    """

    action: dict[str, Any] | None
    tools: tuple[AgentTool, ...]
    visible: frozenset[str] | None = None

    @classmethod
    def of(cls, action: dict[str, Any] | None, tools: list[dict[str, Any]] | None) -> Interface:
        """Build the interface from what a server describes.

        Args:
            action: The JSON schema of the actions; None if the server does not describe it.
            tools: The tools, in the format of MCP; None if the server does not list any.

        Raises:
            NotSupported: The server describes neither actions nor tools.
        """
        variants = _variants(action) if action else []
        call = {"tool_name", "arguments"}
        takes_calls = not variants or any(
            call <= set(one.get("properties", ())) for one in variants
        )
        if tools and takes_calls:
            return cls(action, tuple(map(_of_tool, tools)))
        if not variants or takes_calls:
            raise NotSupported("the environment does not tell how one acts in it", feature="tools")
        if tools is None or len(tools) != len(variants):
            tools = [{"name": _name(one, i)} for i, one in enumerate(variants)]
        made = (_of_variant(tool, one) for tool, one in zip(tools, variants, strict=True))
        return cls(action, tuple(made), _visible(tools))

    @property
    def text_field(self) -> str | None:
        """The text field of the only tool, if nothing else is required; None otherwise."""
        return self.tools[0].text_field if len(self.tools) == 1 else None

    @property
    def takes_any_text(self) -> bool:
        """True if an action is one unrestricted text, so that a whole reply can be the action."""
        field = self.text_field
        if field is None:
            return False
        properties = self.tools[0].input_schema["properties"]
        return len(properties) == 1 and not RESTRICTIONS & properties[field].keys()

    @property
    def takes_code(self) -> bool:
        """True if the only tool takes code, which models put into Markdown fences."""
        field = self.text_field
        if field is None:
            return False
        kind = str(self.tools[0].input_schema["properties"][field].get("contentMediaType", ""))
        if kind:
            return kind.startswith(("text/x-", "application/")) or kind == "text/javascript"
        return field in CODE_FIELDS

    def tool(self, name: str) -> AgentTool | None:
        """Return the tool with a name; None if there is none."""
        return next((one for one in self.tools if one.name == name), None)


def _visible(tools: list[dict[str, Any]]) -> frozenset[str] | None:
    """Return the observation fields that action tools show, the same for every tool."""
    shown = tools[0].get("outputSchema")
    if not isinstance(shown, Mapping) or "properties" not in shown:
        return None
    pictures = (tools[0].get("_meta") or {}).get(PICTURES) or ()
    return frozenset([*shown["properties"], *pictures])


def _variants(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the models of an action's union, each with the definitions that it refers to."""
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    found = schema.get("oneOf") or schema.get("anyOf") or [schema]
    return [{**resolve_reference(one, schema), **shared} for one in found]


def resolve_reference(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return a schema in which a top-level ``$ref`` is replaced by its definition."""
    seen = 0
    while "$ref" in schema and seen < 100:
        name = str(schema["$ref"]).rpartition("/")[2]
        others = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**root.get("$defs", {}).get(name, {}), **others}
        seen += 1
    return schema


def _fixed(properties: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, one in properties.items():
        if "const" in one:
            found[name] = one["const"]
        elif len(one.get("enum", ())) == 1:
            found[name] = one["enum"][0]
    return found


def _of_tool(tool: Mapping[str, Any]) -> AgentTool:
    schema = tool.get("inputSchema") or tool.get("input_schema") or {}
    return AgentTool(tool["name"], tool.get("description") or "", schema, is_call=True)


def _of_variant(tool: Mapping[str, Any], variant: dict[str, Any]) -> AgentTool:
    properties = variant.get("properties", {})
    fixed = _fixed(properties)
    kept = {k: v for k, v in properties.items() if k not in fixed and k not in OTHER_FIELDS}
    required = [name for name in variant.get("required", ()) if name in kept]
    schema = tool.get("inputSchema") or {
        "type": "object",
        "properties": kept,
        **({"required": required} if required else {}),
        **({"$defs": variant["$defs"]} if "$defs" in variant else {}),
    }
    description = tool.get("description") or variant.get("description") or ""
    return AgentTool(tool["name"], description, schema, fixed)


def _name(variant: dict[str, Any], number: int) -> str:
    title = str(variant.get("title", "")).removesuffix("Action")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", title).lower()
    return re.sub(r"\W", "_", words) or (f"act_{number}" if number else "act")


# ------------------------------------------------------------------ sources of interfaces


async def fetch_interface(client: EnvClient[Any, Any, Any]) -> Interface:
    """Fetch the interface from ``/schema`` of a client's server.

    Raises:
        ConnectError: The server did not return a schema.
    """
    told = await _told(client)
    return Interface.of(told.get("action"), told.get("tools"))


async def fetch_reward_spec(client: EnvClient[Any, Any, Any]) -> RewardSpec | None:
    """Fetch the declaration of rewards from a client's server; None if there is none."""
    told = (await _told(client)).get("reward")
    return RewardSpec.from_data(told) if isinstance(told, dict) else None


async def _told(client: EnvClient[Any, Any, Any]) -> dict[str, Any]:
    assert client.base_url is not None
    return await asyncio.to_thread(
        fetch_schema, client.base_url, internals(client).options, SCHEMA_TIMEOUT_S
    )


async def ask_application(app: Any) -> Interface:
    """Ask an ASGI application in this process for the interface at ``/schema``."""
    status, body = await request(app, "/schema", None, key_headers(api_key(), {}))
    if status != 200:
        raise ConnectError(f"the application answered /schema with status {status}")
    told = read_json(body)
    return Interface.of(told.get("action"), told.get("tools"))


async def derive_interface(source: Any, client: EnvClient[Any, Any, Any]) -> Interface:
    """Derive the interface from an environment class or a client's models, and ask a connected
    client for tools.

    Raises:
        NotSupported: Neither describes the environment's actions.
    """
    action_cls, observation_cls, _ = codec.models(type(client))
    if source is not None:
        spec = EnvironmentSpec.of(source, action_cls, observation_cls)
    elif action_cls is None:
        why = f"a bare {type(client).__name__} does not tell how one acts in its environment"
        raise NotSupported(f"{why}; pass its address, or the environment itself", feature="tools")
    else:
        return Interface.of(wire_schema(action_cls, "validation"), await _listed(client))
    if spec.tool_support is ToolSupport.ACTIONS:
        tools = [dict(one.description) for one in action_tools(spec).values()]
        return Interface.of(spec.action_schema(), tools)
    return Interface.of(spec.action_schema(), await _listed(client))


async def _listed(client: EnvClient[Any, Any, Any]) -> list[dict[str, Any]] | None:
    data = {"jsonrpc": "2.0", "id": 1, "method": McpMethod.TOOLS_LIST.value, "params": {}}
    reply = await internals(client).request(Request("mcp", data))
    response = reply.response if isinstance(reply, MCPReply) else None
    if not isinstance(response, dict) or "error" in response:
        return None
    tools: list[dict[str, Any]] = response["result"]["tools"]
    return tools
