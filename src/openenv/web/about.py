"""The description of an environment for the web page: README, forms, code snippets."""

from __future__ import annotations

import functools
import inspect
import logging
import operator
import os
import re
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError

from openenv._internal.generics import members
from openenv._internal.incidents import describe_error
from openenv._internal.models import wire_schema
from openenv.execution.manager import SessionManager
from openenv.execution.spec import EnvironmentSpec
from openenv.execution.tools import list_tools
from openenv.protocol.renderings import RENDER
from openenv.tools.types import CallToolAction, ListToolsAction
from openenv.types import Action, EnvironmentMetadata
from openenv.web.quick_start import Snippet, build_snippets

logger = logging.getLogger(__name__)

OF_TOOLS = (Action, CallToolAction, ListToolsAction)
# Abilities of an environment, and the methods that each requires.
ABILITIES = {
    "render": (RENDER,),
    "snapshot": ("snapshot", "restore"),
    "chat": ("message_to_action",),
}
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
# Paths of a README in an image; the second is that of older images.
READMES_OF_IMAGES = ("/app/env/README.md", "/app/README.md")


class PageTab(BaseModel):
    """An additional page beside the generated page."""

    name: str
    path: str  # relative to the page
    is_primary: bool = False  # whether it is shown first


class PageDescription(BaseModel):
    """The data that the page loads before rendering."""

    model_config = ConfigDict(extra="forbid")

    title: str
    mode: str  # "simulation"; or "production", in which no client controls the environment
    metadata: EnvironmentMetadata
    # JSON schemas of the `action` (empty if all actions are tool calls), of the arguments of
    # `reset`, of the `state` and of the `observation`.
    schemas: dict[str, dict[str, Any]]
    tools: list[dict[str, Any]] | None  # in MCP's format, if actions are tool calls
    reward: dict[str, Any] | None  # the declared meaning of rewards
    can: dict[str, bool]  # abilities of the class: render, snapshot, chat
    snippets: list[Snippet]
    tabs: list[PageTab] = Field(default_factory=list)
    shows_playground: bool = True


async def describe_page(
    manager: SessionManager,
    title: str | None,
    tabs: list[PageTab],
    *,
    shows_playground: bool = True,
) -> PageDescription:
    """Build the page's description; creates an environment to read the metadata."""
    spec = manager.spec
    metadata = await _describe_environment(manager)
    return PageDescription(
        title=title or metadata.name,
        mode=spec.mode.value,
        metadata=metadata,
        schemas={
            "action": action_schema(spec),
            "reset": reset_schema(spec),
            "state": wire_schema(spec.state_cls, "serialization"),
            "observation": wire_schema(spec.observation_cls, "serialization"),
        },
        tools=await list_tools(spec, manager.throwaway) if spec.takes_tool_actions else None,
        reward=None if spec.reward is None else spec.reward.as_data(),
        can={
            name: all(callable(getattr(spec.environment_class, one, None)) for one in methods)
            for name, methods in ABILITIES.items()
        },
        snippets=build_snippets(spec, metadata),
        tabs=tabs,
        shows_playground=shows_playground,
    )


async def _describe_environment(manager: SessionManager) -> EnvironmentMetadata:
    try:
        async with manager.throwaway() as session:
            described = await session.metadata()
    except Exception as error:
        logger.warning("the page does not describe the environment: %s", describe_error(error))
        described = EnvironmentMetadata(name=manager.spec.name, description="")
    cls = manager.spec.environment_class
    if cls is not None and described.name == cls.__name__:  # it has no name of its own
        described.name = manager.spec.name
    return add_readme(described, cls)


def add_readme(metadata: EnvironmentMetadata, cls: type | None) -> EnvironmentMetadata:
    """Add the environment's README, without front matter, to the metadata."""
    text = metadata.readme_content
    if text is None:
        path = next((one for one in _readme_candidates(cls) if one.is_file()), None)
        text = None if path is None else path.read_text("utf-8", errors="replace")
    return metadata.model_copy(
        update={"readme_content": None if text is None else FRONT_MATTER.sub("", text)}
    )


def _readme_candidates(cls: type | None) -> list[Path]:
    """Return possible paths of a README, most likely first."""
    named = os.environ.get("ENV_README_PATH")
    found = [Path(named)] if named else []
    try:
        source = None if cls is None else inspect.getsourcefile(cls)
    except TypeError:  # the class was not read from a file
        source = None
    if source is not None:
        here = Path(source).resolve().parent
        # A package has its README next to pyproject.toml or the manifest, at most a few levels up.
        for folder in (here, *here.parents[:3]):
            if any((folder / name).exists() for name in ("openenv.yaml", "pyproject.toml")):
                found.append(folder / "README.md")
                break
    return [*found, *map(Path, READMES_OF_IMAGES)]


def action_schema(spec: EnvironmentSpec) -> dict[str, Any]:
    """Return the JSON schema of actions other than tool calls; empty if there are none."""
    if not spec.takes_tool_actions:
        return spec.action_schema()
    own = [one for one in members(spec.action_cls) if one not in OF_TOOLS]
    return wire_schema(functools.reduce(operator.or_, own), "validation") if own else {}


def reset_schema(spec: EnvironmentSpec) -> dict[str, Any]:
    """Return the JSON schema of the arguments of `reset`."""
    cls, plan = spec.environment_class, spec.plan
    fields: dict[str, Any] = {}
    takes_more = True
    if cls is not None and plan is not None:
        function = getattr(cls, plan.reset.name)
        try:
            hints = typing.get_type_hints(function)
        except Exception:  # a name is defined for type checkers only
            hints = {}
        parameters = inspect.signature(function).parameters
        takes_more = plan.reset.takes_any
        for name in plan.reset.accepted:
            parameter = parameters[name]
            has_default = parameter.default is not parameter.empty
            fields[name] = (hints.get(name, Any), parameter.default if has_default else ...)
    if takes_more:
        fields.setdefault("seed", (int | None, None))
    config = ConfigDict(extra="allow" if takes_more else "forbid", arbitrary_types_allowed=True)
    make: Callable[..., type[BaseModel]] = functools.partial(
        create_model, "Reset", __config__=config
    )
    try:
        return make(**fields).model_json_schema()
    except (PydanticUserError, NameError, TypeError):
        # A parameter has a type without a JSON schema: allow any JSON value.
        plain = (bool, int, float, str, type(...), type(None))
        for name, (_, default) in fields.items():
            fields[name] = (Any, default if isinstance(default, plain) else None)
        return make(**fields).model_json_schema()


def load_environment_metadata(env: Any, env_name: str | None = None) -> EnvironmentMetadata:
    """Return the metadata of an environment or environment class, with the README.

    An environment without metadata gets the name `env_name`.
    """
    cls = env if isinstance(env, type) else type(env)
    try:
        instance = env() if isinstance(env, type) else env
        try:
            found = instance.get_metadata()
            described = EnvironmentMetadata.model_validate(found, from_attributes=True)
        finally:
            if instance is not env:
                instance.close()
    except Exception as error:
        logger.debug("%r does not describe itself: %s", env, error)
        name = env_name or cls.__name__
        described = EnvironmentMetadata(name=name, description=f"{name} environment")
    return add_readme(described, cls)
