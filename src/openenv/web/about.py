"""What the page tells of its environment: README, forms, code to begin with."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import operator
import os
import re
import typing
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError

from openenv._internal.generics import members
from openenv._internal.incidents import told
from openenv._internal.models import wire_schema
from openenv.execution.manager import SessionManager
from openenv.execution.spec import EnvironmentSpec
from openenv.protocol.renderings import RENDER
from openenv.server.info import listed_tools
from openenv.tools.types import CallToolAction, ListToolsAction
from openenv.types import Action, EnvironmentMetadata
from openenv.web.quick_start import Snippet, snippets

__all__ = ["About", "about", "load_environment_metadata", "reset_schema"]

logger = logging.getLogger(__name__)

OF_TOOLS = (Action, CallToolAction, ListToolsAction)
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
# Where a README may lie in an image, the later ones for images of old.
READMES_OF_IMAGES = ("/app/env/README.md", "/app/README.md")


class Tab(BaseModel):
    """A further page, beside the generated one.

    Attributes:
        name: Its title.
        path: Where it is, relative to the page.
        is_primary: It is shown first.
    """

    name: str
    path: str
    is_primary: bool = False


class About(BaseModel):
    """What the page needs to know before it is shown.

    Attributes:
        title: Of the page.
        mode: ``simulation``, or ``production``, in which nobody controls the world.
        metadata: The environment, in its own words.
        schemas: JSON schemas: of the ``action``, empty where all actions are calls of tools; of the
            arguments of ``reset``, the ``state``, the ``observation``.
        tools: As MCP describes them, where calls of tools are the actions.
        reward: What rewards mean, where that is declared.
        can: What the class can do: ``render``, ``snapshot``, ``chat``.
        snippets: Code to begin with; ``{base_url}`` stands for the server's address.
        tabs: Further pages.
        shows_playground: The generated page is shown.
    """

    model_config = ConfigDict(extra="forbid")

    title: str
    mode: str
    metadata: EnvironmentMetadata
    schemas: dict[str, dict[str, Any]]
    tools: list[dict[str, Any]] | None
    reward: dict[str, Any] | None
    can: dict[str, bool]
    snippets: list[Snippet]
    tabs: list[Tab] = Field(default_factory=list)
    shows_playground: bool = True


async def about(
    manager: SessionManager, title: str | None, tabs: list[Tab], *, shows_playground: bool = True
) -> About:
    """Find out what the page tells; an environment is made where it describes itself."""
    spec = manager.spec
    metadata = await _described(manager)
    return About(
        title=title or metadata.name,
        mode=spec.mode.value,
        metadata=metadata,
        schemas={
            "action": action_schema(spec),
            "reset": reset_schema(spec),
            "state": wire_schema(spec.state_cls, "serialization"),
            "observation": wire_schema(spec.observation_cls, "serialization"),
        },
        tools=await listed_tools(manager) if spec.takes_tool_actions else None,
        reward=None if spec.reward is None else spec.reward.as_data(),
        can=_abilities(spec),
        snippets=snippets(spec, metadata),
        tabs=tabs,
        shows_playground=shows_playground,
    )


async def _described(manager: SessionManager) -> EnvironmentMetadata:
    try:
        async with manager.throwaway() as session:
            described = await session.metadata()
    except Exception as error:
        logger.warning("the page does not describe the environment: %s", told(error))
        described = EnvironmentMetadata(name=manager.spec.name, description="")
    cls = manager.spec.environment_class
    if cls is not None and described.name == cls.__name__:  # it has no name of its own
        described.name = manager.spec.name
    return with_readme(described, cls)


def with_readme(metadata: EnvironmentMetadata, cls: type | None) -> EnvironmentMetadata:
    """The same, with the README that lies beside the environment, without its front matter."""
    text = metadata.readme_content
    if text is None:
        path = next((one for one in _readmes(cls) if one.is_file()), None)
        text = None if path is None else path.read_text("utf-8", errors="replace")
    return metadata.model_copy(
        update={"readme_content": None if text is None else FRONT_MATTER.sub("", text)}
    )


def _readmes(cls: type | None) -> list[Path]:
    """Where a README may be, the likeliest first."""
    named = os.environ.get("ENV_README_PATH")
    found = [Path(named)] if named else []
    try:
        source = None if cls is None else inspect.getsourcefile(cls)
    except TypeError:  # it was not read from a file
        source = None
    if source is not None:
        here = Path(source).resolve().parent
        # Of a package: beside its pyproject.toml or its manifest, which are never far above.
        for folder in (here, *here.parents[:3]):
            if any((folder / name).exists() for name in ("openenv.yaml", "pyproject.toml")):
                found.append(folder / "README.md")
                break
    return [*found, *map(Path, READMES_OF_IMAGES)]


def action_schema(spec: EnvironmentSpec) -> dict[str, Any]:
    """A JSON schema of the actions that are no calls of tools; empty where all are."""
    if not spec.takes_tool_actions:
        return spec.action_schema()
    own = [one for one in members(spec.action_cls) if one not in OF_TOOLS]
    return wire_schema(functools.reduce(operator.or_, own), "validation") if own else {}


def reset_schema(spec: EnvironmentSpec) -> dict[str, Any]:
    """A JSON schema of what `reset` takes."""
    cls, plan = spec.environment_class, spec.plan
    fields: dict[str, Any] = {}
    takes_more = True
    if cls is not None and plan is not None:
        function = getattr(cls, plan.reset.name)
        hints = _hints(function)
        parameters = inspect.signature(function).parameters
        takes_more = plan.reset.takes_any
        for name in plan.reset.accepted:
            parameter = parameters[name]
            has_default = parameter.default is not parameter.empty
            fields[name] = (hints.get(name, Any), parameter.default if has_default else ...)
    if takes_more:
        fields.setdefault("seed", (int | None, None))
    try:
        return _schema_of(fields, takes_more=takes_more)
    except (PydanticUserError, NameError, TypeError):
        # A parameter of a type that JSON does not have: it can be given as any JSON.
        loose = {
            name: (Any, default if _is_plain(default) else None)
            for name, (_, default) in fields.items()
        }
        return _schema_of(loose, takes_more=takes_more)


def _schema_of(fields: dict[str, Any], *, takes_more: bool) -> dict[str, Any]:
    config = ConfigDict(extra="allow" if takes_more else "forbid", arbitrary_types_allowed=True)
    model: type[BaseModel] = create_model("Reset", __config__=config, **fields)
    return model.model_json_schema()


def _is_plain(value: Any) -> bool:
    return value is None or value is ... or isinstance(value, bool | int | float | str)


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # of names that are there for type checkers only
        return {}


def _abilities(spec: EnvironmentSpec) -> dict[str, bool]:
    cls = spec.environment_class

    def has(*names: str) -> bool:
        return all(callable(getattr(cls, name, None)) for name in names)

    return {
        "render": has(RENDER),
        "snapshot": has("snapshot", "restore"),
        "chat": has("message_to_action"),
    }


def load_environment_metadata(env: Any, env_name: str | None = None) -> EnvironmentMetadata:
    """What an environment, or its class, says of itself, with its README.

    Args:
        env: An instance, or a class.
        env_name: Its name, where it says nothing.
    """
    cls = env if isinstance(env, type) else type(env)
    try:
        with contextlib.ExitStack() as stack:
            instance = env
            if isinstance(env, type):
                instance = env()
                stack.callback(instance.close)
            found = instance.get_metadata()
            described = EnvironmentMetadata.model_validate(found, from_attributes=True)
    except Exception as error:
        logger.debug("%r does not describe itself: %s", env, error)
        name = env_name or cls.__name__
        described = EnvironmentMetadata(name=name, description=f"{name} environment")
    return with_readme(described, cls)
