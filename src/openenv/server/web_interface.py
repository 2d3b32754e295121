"""An application that always has the web page, regardless of ENABLE_WEB_INTERFACE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from openenv.server.app import create_app

__all__ = ["create_web_interface_app"]


def create_web_interface_app(env: Any, *arguments: Any, **options: Any) -> FastAPI:
    """Build an application that serves an environment and the web page.

    Arguments and exceptions are those of `openenv.create_app`. `env` may also be an instance: then
    one session runs at a time, every session uses this instance, and no session closes it.
    """
    factory = env if callable(env) else _factory_of(env)
    return create_app(factory, *arguments, **options, web=True)


def _factory_of(instance: Any) -> Callable[[], Any]:
    """Return a factory that always returns the same instance.

    Raises:
        TypeError: The value is not an environment.
    """
    if not (callable(getattr(instance, "reset", None)) and hasattr(instance, "step")):
        raise TypeError(
            f"expected an environment class, a factory or an instance, not "
            f"{type(instance).__name__}"
        )
    instance.close = lambda: None  # the instance outlives all sessions; its creator closes it

    def factory() -> Any:
        return instance

    factory.__name__ = type(instance).__name__
    factory.__annotations__["return"] = type(instance)
    return factory
