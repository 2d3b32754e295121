"""An agent of few lines, which knows nothing of the proxy: it takes its model, its task and its
tools from environment variables, and plays until the model calls no tool.

    python looking_agent.py [--idle] [--hang] [--sub] [--fail]
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from typing import Any


def post(url: str, body: Any, **headers: str) -> Any:
    data = json.dumps(body).encode()
    headers = {"content-type": "application/json", "accept": "application/json", **headers}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, data, headers)) as answer:
        return json.loads(answer.read() or b"null")


def ask(messages: list[Any], tools: list[Any]) -> Any:
    body = {"model": "m", "messages": messages, "max_tokens": 200}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    key = f"Bearer {os.environ['OPENAI_API_KEY']}"
    answer = post(url, {**body, **({"tools": tools} if tools else {})}, authorization=key)
    return answer["choices"][0]["message"]


def mcp(method: str, **params: Any) -> Any:
    asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return post(os.environ["OPENENV_MCP_URL"], asked)["result"]


def play(task: str) -> None:
    tools = [
        {
            "type": "function",
            "function": {"name": tool["name"], "parameters": tool["inputSchema"]},
        }
        for tool in mcp("tools/list")["tools"]
    ]
    messages: list[Any] = [{"role": "user", "content": task}]
    while True:
        message = ask(messages, tools)
        messages.append(message)
        if not message.get("tool_calls"):
            sys.stdout.write(message["content"] + "\n")
            return
        for call in message["tool_calls"]:
            function = call["function"]
            given = json.loads(function["arguments"])
            result = mcp("tools/call", name=function["name"], arguments=given)
            told = result["content"][0]["text"]
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": told})


if __name__ == "__main__":
    if "--idle" in sys.argv:
        sys.stdout.write("nothing to do\n")
        sys.exit(3)
    if "--sub" in sys.argv:
        ask([{"role": "user", "content": "a title"}], [])
    play(os.environ["OPENENV_TASK"])
    if "--hang" in sys.argv:
        time.sleep(600)
    sys.exit(1 if "--fail" in sys.argv else 0)
