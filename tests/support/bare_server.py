"""An MCP server without a library, which starts in no time and misbehaves as it is told.

python bare_server.py [--reset] [--exit CODE] [--mute] [--garbage] [--modern] [--stubborn] [--pages]
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}}
SEED = {"type": "object", "properties": {"seed": {"type": "integer"}, "level": {"type": "string"}}}
NONE: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS = {
    "add": NUMBER,  # to a tally; gives it
    "pid": NONE,
    "variable": TEXT,  # of the environment
    "directory": NONE,
    "die": NONE,
    "hang": TEXT,  # for good; a file of this name is there once it does
    "quiet": NONE,  # answers never, but goes on
    "child": NONE,  # starts another process; gives its id
    "fail": TEXT,
    "stray": TEXT,  # written to stdout, where it has no business
    "refuse": TEXT,  # as an error of JSON-RPC
    "advance": NONE,  # tells how far it is
    "big": NUMBER,  # so many characters
    "flood": NONE,  # a message without an end
    "step": NONE,
    "state": NONE,
}


class Server:
    def __init__(self, options: list[str]) -> None:
        self.options = options
        self.tally = 0
        self.tools = TOOLS | ({"reset": SEED} if "--reset" in options else {})

    def run(self) -> None:
        if "--exit" in self.options:
            say(f"no luck today: {os.environ.get('BARE_TOKEN')} {' '.join(self.options)}")
            sys.exit(int(self.options[self.options.index("--exit") + 1]))
        if "--garbage" in self.options:
            put("Welcome!\n{not JSON")
        if "--stubborn" in self.options:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for line in sys.stdin:
            request = json.loads(line)
            if "id" in request and "--mute" not in self.options:
                answer = self.answer(request["method"], request.get("params") or {})
                if answer is not None:
                    put(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}))
        while "--stubborn" in self.options:
            time.sleep(1)

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        info = {"serverInfo": {"name": "bare", "version": "1"}, "capabilities": {"tools": {}}}
        is_modern = "--modern" in self.options
        if method == "initialize" and not is_modern:
            return {"result": {"protocolVersion": "2025-06-18", **info}}
        more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if is_modern else {}
        if method == "server/discover" and is_modern:
            return {"result": {"supportedVersions": ["2026-07-28"], **info, **more}}
        if method == "tools/list":
            tools = [{"name": n, "inputSchema": schema} for n, schema in self.tools.items()]
            if "--pages" in self.options:  # each is followed by another
                more = {**more, "nextCursor": str(int(params.get("cursor", 0)) + 1)}
            return {"result": {"tools": tools, **more}}
        if method == "resources/list" and "--pages" in self.options:
            found = [{"name": "a", "uri": "a:"}]
            return {"result": {"resources": found, "nextCursor": params.get("cursor", "") + "x"}}
        if method == "tools/call" and params["name"] == "refuse":
            return {"error": {"code": -32602, "message": "not these"}}
        if method == "tools/call":
            meta = params.get("_meta") or {}
            return self.called(params["name"], params.get("arguments") or {}, meta, more)
        return {"error": {"code": -32601, "message": "Method not found"}}

    def called(
        self, name: str, given: dict[str, Any], meta: dict[str, Any], more: dict[str, Any]
    ) -> dict[str, Any] | None:
        if name == "quiet":
            return None
        if name == "advance":
            given = {"token": meta["progressToken"]}
        text = str(getattr(self, f"do_{name}")(**given))
        content = [{"type": "text", "text": text}]
        return {"result": {"content": content, "isError": name == "fail", **more}}

    def do_add(self, n: int) -> int:
        self.tally += n
        return self.tally

    def do_reset(self, seed: int = 0, level: str = "") -> str:
        if level == "none":
            raise SystemExit("there is no such level")
        self.tally = seed
        return f"begun {level}"

    def do_pid(self) -> int:
        return os.getpid()

    def do_variable(self, text: str) -> str:
        return os.environ.get(text, "")

    def do_directory(self) -> str:
        return os.getcwd()

    def do_die(self) -> None:
        say("I am dying")
        os.kill(os.getpid(), signal.SIGKILL)

    def do_hang(self, text: str = "") -> None:
        if text:
            Path(text).touch()
        time.sleep(600)

    def do_child(self) -> int:
        return subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL).pid

    def do_fail(self, text: str) -> str:
        return text

    def do_stray(self, text: str) -> str:
        put(text)
        return "written"

    def do_advance(self, token: Any) -> str:
        told = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
        notice = {"jsonrpc": "2.0", "method": "notifications/progress", "params": told}
        put(json.dumps(notice))
        return "done"

    def do_big(self, n: int) -> str:
        return "x" * n

    def do_flood(self) -> None:
        while True:
            sys.stdout.write("x" * 2**16)


def put(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    Server(sys.argv[1:]).run()
