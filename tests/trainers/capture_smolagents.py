"""An agent of smolagents, as its documentation has it: it takes its model from the environment."""

import os
import sys

from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool


@tool  # type: ignore[untyped-decorator]
def write(text: str) -> str:
    """Write a text into answer.txt.

    Args:
        text: The text.
    """
    with open("answer.txt", "w") as file:
        file.write(text)
    return "written"


if __name__ == "__main__":
    model = OpenAIModel(
        "any", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"]
    )
    kind = CodeAgent if sys.argv[1] == "code" else ToolCallingAgent
    agent = kind(tools=[write], model=model, stream_outputs=sys.argv[2] == "streamed", max_steps=4)
    sys.stdout.write(str(agent.run(os.environ["OPENENV_TASK"])))
