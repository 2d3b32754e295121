"""An agent that writes a line, or asks for a tool, beyond what is taken."""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fastmcp import FastMCP
from support.memory import MIB, kept_below

from openenv.agents import HarnessMCPBridge
from openenv.agents.bridge import MAX_REQUEST_BYTES
from openenv.agents.errors import HarnessOutputTooLarge
from openenv.agents.process import MAX_LINE_BYTES, HarnessProcess

AGENT = """
import sys
for line in sys.stdin:
    count = int(line)
    sys.stdout.write("x" * count + "\\n")
    sys.stdout.flush()
"""
ENDLESS = """
import sys
sys.stdin.readline()
while True:
    sys.stdout.write("x" * 2**16)
"""


async def echoed(agent: HarnessProcess, count: int) -> int:
    await agent.write_line(f"{count}")
    return len(await agent.next_line())


@pytest.mark.anyio
@pytest.mark.parametrize("program", [AGENT, ENDLESS], ids=["long", "endless"])
async def test_a_line_has_at_most_sixteen_mebibytes(program: str, tmp_path: Path) -> None:
    """The limit in its true size; another agent, and the next one, are heard as ever."""
    agent, neighbour = [
        HarnessProcess([sys.executable, "-c", code], str(tmp_path), terminate_grace_s=0.2)
        for code in (program, AGENT)
    ]
    await agent.start()
    await neighbour.start()
    if program == AGENT:
        assert await echoed(agent, MAX_LINE_BYTES - 1) == MAX_LINE_BYTES - 1
    told = f"a line of over {16 * MIB} bytes; raise max_output_bytes"
    with kept_below(6 * MAX_LINE_BYTES), pytest.raises(HarnessOutputTooLarge, match=told):
        await echoed(agent, 2 * MAX_LINE_BYTES)
    assert await echoed(neighbour, 5) == 5
    await agent.stop()
    agent.command[-1] = AGENT
    await agent.start()
    assert await echoed(agent, 7) == 7
    await agent.stop()
    await neighbour.stop()


def test_a_request_for_a_tool_has_at_most_64_mebibytes() -> None:
    """The limit in its true size, with and without a length; another connection is answered in the
    middle of it.
    """
    server: FastMCP[None] = FastMCP("tools")
    bridge = HarnessMCPBridge(server)
    url = urlsplit(bridge.start())
    ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    most = MAX_REQUEST_BYTES // MIB
    neighbours: list[int] = []

    def asked(body: object, headers: dict[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=20)
        connection.request("POST", url.path, body, headers)  # type: ignore[arg-type]
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def parts(count: int) -> Iterator[bytes]:
        for number in range(count):
            if number == count // 2:
                neighbours.append(asked(ping, {})[0])
            yield b" " * MIB

    for count, headers in ((most + 1, {"Content-Length": f"{(most + 1) * MIB}"}), (2 * most, {})):
        with kept_below(MAX_REQUEST_BYTES * 3 // 2):
            status, text = asked(parts(count), headers)
        message = json.loads(text)["error"]["message"]
        assert status == 413 and f"over {64 * MIB} bytes" in message
        assert asked(ping, {})[0] == 200
    assert neighbours == [200, 200]
    threads = threading.active_count()
    bridge.stop()
    assert threading.active_count() == threads - 1
