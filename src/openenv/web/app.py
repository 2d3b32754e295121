"""An application with the page, whatever ENABLE_WEB_INTERFACE says."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from openenv.server.app import create_app

__all__ = ["create_web_interface_app"]


def create_web_interface_app(*arguments: Any, **options: Any) -> FastAPI:
    """Build an application that serves an environment, and its page.

    The arguments, and what it raises, are those of `openenv.create_app`.
    """
    return create_app(*arguments, **options, web=True)
