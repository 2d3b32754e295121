"""An environment whose page was built with Gradio, as those of the public package are; run by a
Python that has Gradio.
"""

from __future__ import annotations

from typing import Any

import gradio as gr  # type: ignore[import-not-found,unused-ignore]
from support.shown import Heard, Say, Talker

from openenv import create_app


def build(
    web_manager: Any,
    action_fields: list[dict[str, Any]],
    metadata: Any,
    is_chat_env: bool,
    title: str,
    quick_start_md: str,
) -> Any:
    async def begin() -> str:
        told = await web_manager.reset_environment({"words": ["begun"]})
        return str(told["observation"]["words"])

    async def say(word: str) -> str:
        told = await web_manager.step_environment({"word": word})
        return f"{told['observation']['words']} {web_manager.get_state()['step_count']}"

    with gr.Blocks() as blocks:
        gr.Markdown(f"{title} of {metadata.name}: {action_fields[0]['name']}, {is_chat_env}")
        gr.Markdown(quick_start_md)
        word, heard = gr.Textbox(label="Word"), gr.Textbox(label="Heard")
        gr.Button("Begin").click(begin, outputs=heard)
        gr.Button("Say").click(say, inputs=word, outputs=heard)
    return blocks


app = create_app(
    Talker,
    Say,
    Heard,
    env_name="talker",
    gradio_builder=build,
    custom_tab_name="Talk",
    custom_tab_primary=True,
    title_override="A talk",
)
