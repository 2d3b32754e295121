"""GET routes from a table, for applications that add pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

__all__ = ["GetEndpointConfig", "register_get_endpoints"]


@dataclass
class GetEndpointConfig:
    """The configuration of a GET route.

    Attributes:
        path: Where it is.
        handler: Makes the answer. A plain function runs on a worker thread, so it may block.
        response_model: What the answer is validated against.
        tag: Its heading in the documentation at ``/docs``.
        summary: Its title there.
        description: What it says there.
    """

    path: str
    handler: Callable[[], BaseModel | dict[str, Any]]
    response_model: type[BaseModel] | type[dict[str, Any]]
    tag: str
    summary: str
    description: str


def register_get_endpoints(app: FastAPI, configs: Sequence[GetEndpointConfig]) -> None:
    """Add each of `configs` to `app`."""
    for config in configs:
        app.add_api_route(
            config.path,
            config.handler,
            methods=["GET"],
            response_model=config.response_model,
            tags=[config.tag],
            summary=config.summary,
            description=config.description,
        )
