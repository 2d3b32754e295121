"""Pages that an environment brings along, built with Gradio (https://www.gradio.app)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from openenv._internal.packages import needs
from openenv.types import EnvironmentMetadata
from openenv.web.about import Tab
from openenv.web.episode import WebInterfaceManager
from openenv.web.fields import extract_action_fields, is_chat_env
from openenv.web.quick_start import get_quick_start_markdown

__all__ = ["GradioBuilder", "custom_tab"]

GradioBuilder = Callable[..., Any]
PATH = "/web/custom"


def custom_tab(
    app: FastAPI,
    shared: WebInterfaceManager,
    builder: GradioBuilder,
    *,
    name: str,
    is_primary: bool,
    title: str,
    metadata: EnvironmentMetadata,
) -> Tab:
    """Serve what a builder has built, below the page.

    Args:
        app: The application.
        shared: What the builder is given to act with; all visitors of its page share an episode.
        builder: Called with the manager, the fields of the action, the metadata, whether actions
            are tokens, the title, and code to begin with as Markdown.
        name: Of the tab.
        is_primary: It is shown first.
        title: Of the page.
        metadata: What the environment says of itself.

    Raises:
        MissingPackage: Gradio is not installed.
        TypeError: It has built no `gradio.Blocks`.
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # nothing is asked for elsewhere
    with needs("gradio_builder", "pip install 'openenv[web]'"):
        import gradio  # type: ignore[import-not-found,unused-ignore]

    built = builder(
        shared,
        extract_action_fields(shared.action_cls),
        metadata,
        is_chat_env(shared.action_cls),
        title,
        get_quick_start_markdown(metadata, shared.action_cls, shared.observation_cls),
    )
    if not isinstance(built, gradio.Blocks):
        raise TypeError(
            f"{_named(builder)} returned {type(built).__name__}; a gradio_builder returns "
            "gradio.Blocks"
        )
    gradio.mount_gradio_app(app, built, path=PATH)
    return Tab(name=name, path=PATH.rpartition("/")[2] + "/", is_primary=is_primary)


def _named(builder: GradioBuilder) -> str:
    return getattr(builder, "__qualname__", None) or type(builder).__name__
