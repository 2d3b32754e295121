"""Code snippets for the served environment: Python, curl, MCP, a trainer."""

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
    """A code snippet; ``{base_url}`` stands for the server's address.

    Attributes:
        id: Identifier.
        label: Title.
        language: Language for syntax highlighting.
        code: The code.
        note: A remark for the reader.
    """

    id: str
    label: str
    language: str
    code: str
    note: str = ""


def build_snippets(spec: EnvironmentSpec, metadata: EnvironmentMetadata) -> list[Snippet]:
    """Return code that uses the environment, most common first."""
    action = example_action(spec.action_schema())
    found = [
        Snippet(id="sync", label="Python", language="python", code=_sync(action)),
        Snippet(id="async", label="Python, async", language="python", code=_async(action)),
        Snippet(id="curl", label="curl", language="shell", code=_curl(action)),
        Snippet(
            id="mcp",
            label="MCP",
            language="json",
            code=_mcp(metadata.name),
            note="For agents that come with their own model. In production mode these are all that "
            "an agent can do.",
        ),
        Snippet(id="train", label="TRL", language="python", code=_trl()),
    ]
    space = os.environ.get("SPACE_ID")
    if space:
        found.insert(
            2, Snippet(id="hub", label="From the hub", language="python", code=_hub(space, action))
        )
    return found


def get_quick_start_markdown(
    metadata: EnvironmentMetadata | None, action_cls: Any, observation_cls: Any
) -> str:
    """Return the Python snippet as Markdown, for pages written for the public package.

    Args:
        metadata: Metadata of the environment.
        action_cls: The action model.
        observation_cls: Ignored; kept for compatibility.
    """
    action = example_action(wire_schema(action_cls, "validation"))
    host = os.environ.get("SPACE_HOST")
    code = _sync(action).replace(BASE_URL, f"https://{host}" if host else "http://localhost:8000")
    return f"### {metadata.name if metadata else 'Quick start'}\n\n```python\n{code}```\n"


def example_action(schema: dict[str, Any]) -> dict[str, Any]:
    """Build an action that satisfies the schema, as far as types and examples tell."""
    found = _example(schema, schema, 0)
    return found if isinstance(found, dict) else {}


PLAIN: dict[str, Any] = {"string": "hello", "boolean": True, "null": None}


def _example(schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    if depth > 8:  # a model that holds itself
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


def _sync(action: dict[str, Any]) -> str:
    return f"""from openenv import GenericEnvClient

with GenericEnvClient(base_url="{BASE_URL}").sync() as env:
    result = env.reset(seed=0)
    print(result.observation)
    result = env.step({action!r})
    print(result.observation, result.reward, result.done)
"""


def _async(action: dict[str, Any]) -> str:
    return f"""import asyncio

from openenv import GenericEnvClient


async def main() -> None:
    async with GenericEnvClient(base_url="{BASE_URL}") as env:
        result = await env.reset(seed=0)
        result = await env.step({action!r})
        print(result.observation, result.reward, result.done)


asyncio.run(main())
"""


def _hub(space: str, action: dict[str, Any]) -> str:
    return f"""from openenv import AutoEnv

with AutoEnv.from_env("{space}").sync() as env:
    result = env.reset(seed=0)
    result = env.step({action!r})
"""


def _curl(action: dict[str, Any]) -> str:
    step = shlex.quote(json.dumps({"action": action}))
    json_of = "-H 'Content-Type: application/json'"
    return f"""curl -s -c jar -b jar {json_of} -d '{{"seed": 0}}' {BASE_URL}/reset
curl -s -c jar -b jar {json_of} -d {step} {BASE_URL}/step
curl -s -b jar {BASE_URL}/state
"""


def _mcp(name: str) -> str:
    server = {"type": "http", "url": f"{BASE_URL}/mcp"}
    return json.dumps({"mcpServers": {name: server}}, indent=2) + "\n"


def _trl() -> str:
    return f"""from openenv.integrations.trl import environment_factory
from trl import GRPOTrainer

GRPOTrainer(..., environment_factory=environment_factory("{BASE_URL}"))
"""
