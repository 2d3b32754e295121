# mypy: ignore-errors
"""A client of a language model, as users of the public package wrote it; it prints what it got."""

import asyncio
import json
import sys

from openenv.core import LLMResponse, create_llm_client
from openenv.core.llm_client import LLMClient, OpenAIClient, ToolCall

TOOLS = [
    {
        "name": "add",
        "description": "adds",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
        },
    }
]


def shown(call, *given):
    try:
        return call(*given)
    except Exception as error:
        return next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")


def base_url(*given):
    return OpenAIClient(*given, "m").base_url


async def asked(endpoint, port):
    client = OpenAIClient(endpoint, port, "toy", "key", system_prompt="be brief", temperature=0.5)
    told = [await client.complete("hello"), await client.complete("hi", max_tokens=7)]
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "add"}]
    answer = await client.complete_with_tools(messages, TOOLS, temperature=0.25)
    messages.append(answer.to_message_dict())
    messages.append({"role": "tool", "tool_call_id": answer.tool_calls[0].id, "content": "3"})
    told += [messages, answer.tool_calls[0].args, answer.content]
    told.append((await client.complete_with_tools(messages, TOOLS)).content)
    reasoning = OpenAIClient(endpoint, port, "o3", use_max_completion_tokens=True)
    told.append(await reasoning.complete("think", max_tokens=9))
    return told


def main(endpoint, port):
    response = LLMResponse("text", [ToolCall("1", "add", {"a": 1})])
    hosted = create_llm_client("openai", "gpt-4o", "key", system_prompt="s", max_tokens=5)
    urls = [("http://h", 8), ("http://h:8", 8), ("http://h/v2/", 8), ("https://h", None)]
    wrong = [("http://h:9", 8), ("http://h", 0), ("h", 8), ("http://a:b@h", 8), ("http://h?x", 8)]
    told = {
        "asked": asyncio.run(asked(endpoint, int(port))),
        "response": [response.to_message_dict(), response == LLMResponse("text")],
        "urls": [base_url(*url) for url in urls],
        "refused": [shown(base_url, *url) for url in wrong],
        "hosted": [hosted.base_url, hosted.model, hosted.system_prompt, hosted.max_tokens],
        "providers": shown(create_llm_client, "nobody", "m", "key"),
        "abstract": shown(LLMClient, "http://h", 8),
    }
    json.dump(told, sys.stdout, default=str)


if __name__ == "__main__":
    main(*sys.argv[1:])
