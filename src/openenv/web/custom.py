"""Custom pages of an environment, built with Gradio (https://www.gradio.app)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from openenv._internal.packages import needs
from openenv.types import EnvironmentMetadata
from openenv.web.about import PageTab
from openenv.web.episode import WebInterfaceManager
from openenv.web.fields import extract_action_fields, is_chat_env
from openenv.web.quick_start import get_quick_start_markdown

GradioBuilder = Callable[..., Any]
PATH = "/web/custom"


def mount_custom_tab(
    app: FastAPI,
    shared: WebInterfaceManager,
    builder: GradioBuilder,
    *,
    name: str,
    is_primary: bool,
    title: str,
    metadata: EnvironmentMetadata,
) -> PageTab:
    """Build a Gradio page and mount it as a tab of the web page.

    `builder` is called with the manager, whose episode all visitors of the tab share, the fields of
    the action, the metadata, whether actions are tokens, the title, and the quick-start code.

    Raises:
        MissingPackage: Gradio is not installed.
        TypeError: The builder did not return `gradio.Blocks`.
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # no requests to other hosts
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
        name = getattr(builder, "__qualname__", None) or type(builder).__name__
        raise TypeError(
            f"{name} returned {type(built).__name__}; a gradio_builder returns gradio.Blocks"
        )
    gradio.mount_gradio_app(app, built, path=PATH)
    return PageTab(name=name, path=PATH.rpartition("/")[2] + "/", is_primary=is_primary)
