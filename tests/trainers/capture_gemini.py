"""A conversation with a tool by Google's own SDK, whose model environment variables name."""

import os
import sys
from importlib import import_module
from typing import Any

genai: Any = import_module("google.genai")
types: Any = genai.types

if __name__ == "__main__":
    client = genai.Client(
        api_key=os.environ["GEMINI_API_KEY"],
        http_options=types.HttpOptions(base_url=os.environ["GOOGLE_GEMINI_BASE_URL"]),
    )
    look = types.FunctionDeclaration(
        name="write",
        parameters=types.Schema(type="OBJECT", properties={"text": types.Schema(type="STRING")}),
    )
    config = types.GenerateContentConfig(
        system_instruction="be brief",
        tools=[types.Tool(function_declarations=[look])],
        max_output_tokens=99,
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    contents = [types.Content(role="user", parts=[types.Part(text=os.environ["OPENENV_TASK"])])]
    while True:
        if sys.argv[1] == "streamed":
            parts: list[Any] = []
            for chunk in client.models.generate_content_stream(
                model="any", contents=contents, config=config
            ):
                parts += chunk.candidates[0].content.parts or []
        else:
            answer = client.models.generate_content(model="any", contents=contents, config=config)
            parts = answer.candidates[0].content.parts
        contents.append(types.Content(role="model", parts=parts))
        calls = [part.function_call for part in parts if part.function_call]
        if not calls:
            sys.stdout.write("".join(part.text or "" for part in parts))
            break
        for call in calls:
            with open("answer.txt", "w") as file:
                file.write(call.args["text"])
            told = types.FunctionResponse(
                id=call.id, name=call.name, response={"output": "written"}
            )
            contents.append(types.Content(role="user", parts=[types.Part(function_response=told)]))
