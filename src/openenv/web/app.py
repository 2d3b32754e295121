"""An application with the page, whatever ENABLE_WEB_INTERFACE says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from openenv.server.app import create_app

__all__ = ["create_web_interface_app"]


def create_web_interface_app(env: Any, *arguments: Any, **options: Any) -> FastAPI:
    """Build an application that serves an environment, and its page.

    The arguments, and what it raises, are those of `openenv.create_app`. `env` may be an instance
    as well: then there is one session at a time, all of them have this instance, and none of them
    closes it.
    """
    factory = env if callable(env) else _only(env)
    return create_app(factory, *arguments, **options, web=True)


def _only(instance: Any) -> Callable[[], Any]:
    """Return a factory of an instance that exists already.

    Raises:
        TypeError: It is no environment.
    """
    if not (callable(getattr(instance, "reset", None)) and hasattr(instance, "step")):
        raise TypeError(
            f"an environment class, a factory or an instance is needed, not "
            f"{type(instance).__name__}"
        )
    instance.close = lambda: None  # it outlives its sessions, and whoever made it closes it

    def factory() -> Any:
        return instance

    factory.__name__ = type(instance).__name__
    factory.__annotations__["return"] = type(instance)
    return factory
