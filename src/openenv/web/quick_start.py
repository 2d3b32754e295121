"""Code snippets for the served environment: Python, curl, MCP and a trainer."""

from __future__ import annotations

import json
import os
import shlex
from typing import Any

from pydantic import BaseModel

from openenv._internal.models import wire_schema
from openenv.execution.spec import EnvironmentSpec
from openenv.types import EnvironmentMetadata

BASE_URL = "{base_url}"


class Snippet(BaseModel):
    """A code snippet; ``{base_url}`` stands for the server's address."""

    id: str
    label: str
    language: str  # for syntax highlighting
    code: str
    note: str = ""  # for the reader


def build_snippets(spec: EnvironmentSpec, metadata: EnvironmentMetadata) -> list[Snippet]:
    """Return code that uses the environment, most common first."""
    action = example_action(spec.action_schema())
    body = shlex.quote(json.dumps({"action": action}))
    servers = {"mcpServers": {metadata.name: {"type": "http", "url": f"{BASE_URL}/mcp"}}}
    note = (
        "For agents that come with their own model. In production mode these are all that an agent "
        "can do."
    )
    found = [
        ("sync", "Python", "python", SYNC.replace("__ACTION__", repr(action)), ""),
        ("async", "Python, async", "python", ASYNC.replace("__ACTION__", repr(action)), ""),
        ("curl", "curl", "shell", CURL.replace("__BODY__", body), ""),
        ("mcp", "MCP", "json", json.dumps(servers, indent=2) + "\n", note),
        ("train", "TRL", "python", TRL, ""),
    ]
    if space := os.environ.get("SPACE_ID"):
        code = HUB.replace("__SPACE__", space).replace("__ACTION__", repr(action))
        found.insert(2, ("hub", "From the hub", "python", code, ""))
    return [Snippet(**dict(zip(Snippet.model_fields, one, strict=True))) for one in found]


def get_quick_start_markdown(
    metadata: EnvironmentMetadata | None, action_cls: Any, observation_cls: Any
) -> str:
    """Return the Python snippet as Markdown, for pages written for the public package.

    `observation_cls` is ignored.
    """
    action = example_action(wire_schema(action_cls, "validation"))
    host = os.environ.get("SPACE_HOST")
    code = SYNC.replace("__ACTION__", repr(action)).replace(
        BASE_URL, f"https://{host}" if host else "http://localhost:8000"
    )
    return f"### {metadata.name if metadata else 'Quick start'}\n\n```python\n{code}```\n"


def example_action(schema: dict[str, Any]) -> dict[str, Any]:
    """Build an action that satisfies the schema, as far as types and examples allow."""
    found = _example(schema, schema, 0)
    return found if isinstance(found, dict) else {}


PLAIN: dict[str, Any] = {"string": "hello", "boolean": True, "null": None}


def _example(schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    if depth > 8:  # a model that contains itself
        return None
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return _example(root.get("$defs", {}).get(name, {}), root, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _example(schema[key][0], root, depth + 1)
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return _number(schema)
    if kind == "array":
        item = _example(schema.get("items", {}), root, depth + 1)
        return [item] * max(int(schema.get("minItems", 0)), 1)
    if kind == "object":
        required = schema.get("required", [])
        fields = schema.get("properties", {})
        return {name: _example(fields.get(name, {}), root, depth + 1) for name in required}
    return PLAIN.get(str(kind), "hello")


def _number(schema: dict[str, Any]) -> float:
    """Return the smallest allowed number, or 1."""
    is_whole = schema["type"] == "integer"
    if "minimum" in schema:
        return int(schema["minimum"]) if is_whole else float(schema["minimum"])
    if "exclusiveMinimum" in schema:
        return int(schema["exclusiveMinimum"]) + 1 if is_whole else schema["exclusiveMinimum"] + 0.5
    highest = schema.get("maximum", schema.get("exclusiveMaximum", 2))
    return 1 if highest > 1 else int(highest) - 1


SYNC = """from openenv import GenericEnvClient

with GenericEnvClient(base_url="{base_url}").sync() as env:
    result = env.reset(seed=0)
    print(result.observation)
    result = env.step(__ACTION__)
    print(result.observation, result.reward, result.done)
"""
ASYNC = """import asyncio

from openenv import GenericEnvClient


async def main() -> None:
    async with GenericEnvClient(base_url="{base_url}") as env:
        result = await env.reset(seed=0)
        result = await env.step(__ACTION__)
        print(result.observation, result.reward, result.done)


asyncio.run(main())
"""
HUB = """from openenv import AutoEnv

with AutoEnv.from_env("__SPACE__").sync() as env:
    result = env.reset(seed=0)
    result = env.step(__ACTION__)
"""
POST = "curl -s -c jar -b jar -H 'Content-Type: application/json' -d"
CURL = f"""{POST} '{{"seed": 0}}' {BASE_URL}/reset
{POST} __BODY__ {BASE_URL}/step
curl -s -b jar {BASE_URL}/state
"""
TRL = """from openenv.integrations.trl import environment_factory
from trl import GRPOTrainer

GRPOTrainer(..., environment_factory=environment_factory("{base_url}"))
"""
