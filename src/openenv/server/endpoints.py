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
        path: The path of the route.
        handler: Makes the response. A plain function runs on a worker thread, so it may block.
        response_model: The model that validates the response.
        tag: The route's heading in the documentation at ``/docs``.
        summary: The route's title there.
        description: The route's description there.
    """

    path: str
    handler: Callable[[], BaseModel | dict[str, Any]]
    response_model: type[BaseModel] | type[dict[str, Any]]
    tag: str
    summary: str
    description: str


def register_get_endpoints(app: FastAPI, configs: Sequence[GetEndpointConfig]) -> None:
    """Add a route to `app` for each of `configs`."""
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
