"""Requests to `/mcp` over kept connections that wait for each answer; prints one JSON object.

    python mcp_load.py PORT DIALECT METHOD --connections N --duration S [--cpu-of PID ...]

DIALECT is `private` (JSON-RPC of the public package, with a session), `modern` (MCP 2026-07-28) or
`handshake` (MCP 2025-11-25, with a session). METHOD is `list`, `call` or `open`, which opens
sessions, calls each once, and holds them until standard input ends.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import sys
import time
from pathlib import Path
from typing import Any

PROTOCOLS = {"modern": "2026-07-28", "handshake": "2025-11-25"}
META = {
    "io.modelcontextprotocol/protocolVersion": PROTOCOLS["modern"],
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
MESSAGE = "hello, world"
TICKS = os.sysconf("SC_CLK_TCK")


class Connection:
    """A kept connection, and the session of its requests."""

    def __init__(self, port: int, dialect: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.dialect = dialect
        self.session = ""
        self.began = 0.0
        self._unread = b""

    def open(self) -> None:
        """Open a session, if the dialect has sessions."""
        if self.dialect == "private":
            answer = self.ask({"method": "openenv/session/create", "params": {}})
            self.session = answer["result"]["session_id"]
        elif self.dialect == "handshake":
            params = {
                "protocolVersion": PROTOCOLS["handshake"],
                "capabilities": {},
                "clientInfo": META["io.modelcontextprotocol/clientInfo"],
            }
            answer = self.ask({"method": "initialize", "params": params})
            assert answer["result"]["protocolVersion"] == PROTOCOLS["handshake"]
            self.socket.sendall(self.request({"method": "notifications/initialized"}, None))
            self.answer()

    def request(self, body: dict[str, Any], number: int | None = 1) -> bytes:
        """Write a request."""
        named = {} if number is None else {"id": number}
        content = json.dumps({"jsonrpc": "2.0", **named, **body}).encode()
        heads = [f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(content)}"]
        heads.append("Content-Type: application/json")
        if self.dialect in PROTOCOLS:
            heads.append("Accept: application/json, text/event-stream")
        if self.dialect == "modern":
            heads += [
                f"MCP-Protocol-Version: {PROTOCOLS['modern']}",
                f"Mcp-Method: {body['method']}",
            ]
            if body["method"] == "tools/call":
                heads.append(f"Mcp-Name: {body['params']['name']}")
        elif self.session and self.dialect == "handshake":
            heads.append(f"MCP-Protocol-Version: {PROTOCOLS['handshake']}")
            heads.append(f"Mcp-Session-Id: {self.session}")
        return "\r\n".join(heads).encode() + b"\r\n\r\n" + content

    def prepared(self, method: str) -> bytes:
        """Return the request to measure."""
        params: dict[str, Any] = {}
        if method == "call":
            params = {"name": "echo_message", "arguments": {"message": MESSAGE}}
        if self.dialect == "private":
            params["session_id"] = self.session
        elif self.dialect == "modern":
            params["_meta"] = META
        return self.request({"method": f"tools/{method}", "params": params})

    def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and return the decoded answer."""
        self.socket.sendall(self.request(body))
        answer = self.answer()
        text = answer.partition(b"data: ")[2].split(b"\r\n")[0] or answer
        decoded: dict[str, Any] = json.loads(text)
        return decoded

    def answer(self) -> bytes:
        """Read one whole answer."""
        while True:
            found = self.whole()
            if found is not None:
                return found
            self.feed()

    def feed(self) -> None:
        """Read the available bytes.

        Raises:
            ConnectionError: The server has closed the connection.
        """
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._unread += data

    def whole(self) -> bytes | None:
        """Return the body of an answer, or None if parts of it are missing."""
        head, separator, rest = self._unread.partition(b"\r\n\r\n")
        if not separator:
            return None
        lower = head.lower()
        if b"mcp-session-id:" in lower:
            self.session = lower.split(b"mcp-session-id:")[1].split(b"\r\n")[0].strip().decode()
        if b"transfer-encoding: chunked" in lower:
            if not rest.endswith(b"0\r\n\r\n"):
                return None
            self._unread = b""
            return rest
        at = lower.find(b"content-length:")
        length = int(lower[at + 15 :].split(b"\r\n")[0]) if at >= 0 else 0
        if len(rest) < length:
            return None
        self._unread = rest[length:]
        return rest[:length]


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU time of processes so far, in seconds."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Send requests on every connection, one after the other, for the given duration."""
    connections = [Connection(options.port, options.dialect) for _ in range(options.connections)]
    expected = MESSAGE.encode() if options.method == "call" else b"echo_message"
    selector = selectors.DefaultSelector()
    requests = {}
    for connection in connections:
        connection.open()
        requests[connection] = connection.prepared(options.method)
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    took: list[float] = []
    wrong = 0
    for connection in connections:
        connection.began = time.perf_counter()
        connection.socket.sendall(requests[connection])
    start = time.perf_counter() + options.warmup
    until, cpu, is_warm = start + options.duration, 0.0, False
    while (now := time.perf_counter()) < until:
        if not is_warm and now >= start:
            is_warm, cpu = True, cpu_seconds(options.cpu_of)
            took.clear()
            wrong = 0
        for key, _ in selector.select(0.1):
            connection = key.data
            connection.feed()
            answer = connection.whole()
            if answer is None:
                continue
            now = time.perf_counter()
            wrong += expected not in answer
            took.append(now - connection.began)
            connection.began = now
            connection.socket.sendall(requests[connection])
    used = cpu_seconds(options.cpu_of) - cpu
    took.sort()
    at = {f"p{q}": took[min(int(len(took) * q / 100), len(took) - 1)] * 1e6 for q in (50, 90, 99)}
    return {
        "steps": len(took),
        "steps_per_s": len(took) / options.duration,
        "server_cpu_s": used,
        "latency_us": at,
        "errors": {"closed": {}, "wrong": wrong},
    }


def hold(options: argparse.Namespace) -> None:
    """Open sessions, and call each once; they stay open until standard input ends."""
    connections = []
    for _ in range(options.connections):
        connection = Connection(options.port, options.dialect)
        connection.open()
        connection.socket.sendall(connection.prepared("call"))
        assert MESSAGE.encode() in connection.answer()
        connections.append(connection)
    print(json.dumps({"opened": len(connections)}), flush=True)
    sys.stdin.read()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("dialect", choices=["private", *PROTOCOLS])
    parser.add_argument("method", choices=["list", "call", "open"])
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--duration", type=float, default=2.0)
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--cpu-of", type=int, nargs="*", default=[])
    options = parser.parse_args()
    if options.method == "open":
        hold(options)
    else:
        print(json.dumps(measure(options)))


if __name__ == "__main__":
    main()
