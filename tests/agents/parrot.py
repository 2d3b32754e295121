"""An agent as a program: it runs all along, reads messages, and writes events.

What it does with a message, the message says: ``say``, ``tool``, ``die``, ``hang`` and so on. It
speaks MCP by its own few lines of HTTP, to the tools of the environment.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

URL = os.environ.get("OPENENV_MCP_URL", "")


def write(kind: str, **data: Any) -> None:
    print(json.dumps({"type": kind, "data": data}), flush=True)


def ask(method: str, **params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(URL, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def call(name: str, **arguments: Any) -> Any:
    answer = ask("tools/call", name=name, arguments=arguments)
    return answer.get("result") or answer["error"]


def turn(message: str, heard: list[str]) -> None:
    word, _, rest = message.partition(" ")
    if word == "die":
        write("text_output", text="I feel unwell")
        print("the engine is on fire", file=sys.stderr, flush=True)
        os._exit(int(rest or 3))
    if word == "hang":
        if rest:
            Path(rest).touch()
        time.sleep(60)
    if word == "garbage":
        print("Traceback (most recent call last):", flush=True)
    if word == "flood":
        for _ in range(1000):
            write("text_output", text="x" * 1000)
    if word == "line":
        print("x" * 1_000_000, flush=True)
    if word == "fail":
        write("error", message="the model is out of reach")
        return
    if word == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        write("turn_complete", response=str(child.pid))
        return
    if word == "tools":
        names = [tool["name"] for tool in ask("tools/list")["result"]["tools"]]
        write("turn_complete", response=" ".join(names))
        return
    if word == "call":
        name, _, arguments = rest.partition(" ")
        result = call(name, **json.loads(arguments or "{}"))
        write("turn_complete", response=json.dumps(result))
        return
    if word == "environment":
        write("turn_complete", response=json.dumps(dict(os.environ)))
        return
    if word == "bye":
        write("turn_complete", response="bye", done=True)
        return
    write("text_output", text=f"{len(heard)}: {message}")
    write("turn_complete", response=f"I have heard {', '.join(heard)}")


def main() -> None:
    if "--fails" in sys.argv:
        sys.exit("no licence")
    if "--slow" in sys.argv:
        time.sleep(60)
    write("ready")
    heard: list[str] = []
    for line in sys.stdin:
        message = json.loads(line)["content"]
        heard.append(message)
        turn(message, heard)


if __name__ == "__main__":
    main()
