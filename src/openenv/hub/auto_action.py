"""Action models by environment name."""

from __future__ import annotations

import os
from typing import Any

from openenv.hub.auto_env import find_package, resolved_class_name
from openenv.hub.discovery import get_discovery, print_table

__all__ = ["AutoAction"]


class AutoAction:
    """Finds action models by environment name.

    Example:
        >>> from openenv import AutoAction
        >>> EchoAction = AutoAction.from_env("echo")
        >>> EchoAction(message="hello").message
        'hello'
    """

    def __init__(self) -> None:
        raise TypeError("AutoAction is not instantiated; call AutoAction.from_env(name)")

    @classmethod
    def from_env(
        cls,
        name: str | os.PathLike[str],
        skip_install: bool = False,
        *,
        revision: str | None = None,
    ) -> type[Any]:
        """Find the action model of an environment.

        Args:
            name: An installed environment (``echo``, ``echo-env``, ``echo_env``), a directory
                (``./my_env``), or a repository on the Hub: ``owner/name``, ``owner/name@revision``,
                or its URL.
            skip_install: Install and look up nothing, and return `GenericAction`.
            revision: The branch, tag or commit of a package from the Hub.

        Raises:
            UnknownEnvironmentError: (ValueError) No environment of this name is installed.
            InstallRefusedError: (ValueError) The user did not consent to installing code from the
                Hub.
            HubError: The Hub has no such Space or revision, or does not answer.
            ImportError: The package cannot be imported, or defines no action model.
        """
        if skip_install:
            from openenv.client.generic import GenericAction

            return GenericAction
        return find_package(name, revision=revision).get_action_class()

    @classmethod
    def from_hub(cls, env_name: str, skip_install: bool = False, **kwargs: Any) -> type[Any]:
        """Call `from_env`; kept for compatibility."""
        return cls.from_env(env_name, skip_install, **kwargs)

    @classmethod
    def get_action_info(cls, name: str) -> dict[str, Any]:
        """Describe the models of an installed environment.

        Raises:
            UnknownEnvironmentError: (ValueError) No environment of this name is installed.
        """
        info = get_discovery().require(name)
        return {
            "env_key": info.env_key,
            "env_name": info.name,
            "package": info.package_name,
            "action_class": resolved_class_name(info.get_action_class, info.action_class_name),
            "observation_class": resolved_class_name(
                info.get_observation_class, info.observation_class_name
            ),
            "module": info.client_module_path,
        }

    @classmethod
    def list_actions(cls) -> None:
        """Print the action models of every installed environment."""
        known = get_discovery().discover().values()
        rows = [
            (
                i.env_key,
                resolved_class_name(i.get_action_class, i.action_class_name),
                i.package_name,
            )
            for i in known
        ]
        print_table("Available Action Classes:", rows, "action classes")
