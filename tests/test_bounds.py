"""What is read of a file, a program or another server has bounds.

Each test goes over one that has no file of tests of its own, and then does the same within it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from picows.common import WSProtocolError
from picows.picows import WSMsgType
from support.memory import MIB, kept_below
from support.rawserver import Peer, raw_server

from openenv._internal.fragments import Fragments
from openenv._internal.net.http import MAX_BYTES, ask
from openenv._internal.yaml import MAX_DEPTH, MAX_VALUES, UnreadableYAML, read_yaml
from openenv.cli._console import CommandError
from openenv.cli._vendor import read_source
from openenv.client.transports.websocket import (
    MAX_REDIRECTS,
    WebSocketOptions,
    WebSocketTransport,
)
from openenv.errors import ConnectError
from openenv.hub.catalog import CatalogError, load_catalog
from openenv.hub.catalog.repository import GitSnapshot
from openenv.rollouts import formats
from openenv.validation.oracle import OracleError, OracleProgram
from openenv.validation.probes import ProbeView


def test_a_message_may_come_in_so_many_fragments_only() -> None:
    """Empty ones too, which no limit of bytes would count."""
    one, other = Fragments(None), Fragments(None)
    assert other.add(WSMsgType.TEXT, b"a", is_last=False) is None
    one.add(WSMsgType.TEXT, b"", is_last=False)
    for _ in range(Fragments.MAX_FRAGMENTS - 1):
        one.add(WSMsgType.CONTINUATION, b"", is_last=False)
    with pytest.raises(WSProtocolError, match="in too many fragments; at most 100000"):
        one.add(WSMsgType.CONTINUATION, b"", is_last=False)
    assert other.add(WSMsgType.CONTINUATION, b"b", is_last=True) == (
        WSMsgType.TEXT,
        bytearray(b"ab"),
    )


def test_an_answer_over_http_is_read_so_far_and_no_further() -> None:
    def pour(peer: Peer) -> None:
        peer.read_head()
        peer.socket.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            peer.socket.sendall(b"x" * MIB)

    with raw_server(pour) as port, kept_below(4 * MAX_BYTES):
        url = f"http://127.0.0.1:{port}/"
        assert ask(url, timeout_s=20).body == b"x" * MAX_BYTES
        assert ask(url, timeout_s=20, max_bytes=10).body == b"x" * 10


@pytest.mark.anyio
async def test_a_redirect_in_a_circle_has_an_end() -> None:
    asked: list[int] = []

    def back(peer: Peer) -> None:
        peer.read_head()
        asked.append(1)
        where = f"Location: http://127.0.0.1:{peer.socket.getsockname()[1]}/ws"
        head = f"HTTP/1.1 307 Temporary Redirect\r\n{where}\r\nContent-Length: 0\r\n\r\n"
        peer.socket.sendall(head.encode())

    with raw_server(back) as port:
        transport = WebSocketTransport(
            f"ws://127.0.0.1:{port}/ws", WebSocketOptions(connect_timeout_s=10.0)
        )
        with pytest.raises(ConnectError, match="307"):
            await transport.connect()
    assert len(asked) == 1 + MAX_REDIRECTS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"[{', '.join('a' * (MAX_VALUES + 1))}]", f"more than {MAX_VALUES} values"),
        ("\n".join("  " * depth + "a:" for depth in range(MAX_DEPTH + 5)), "nested too deeply"),
    ],
    ids=["values", "depth"],
)
def test_yaml_of_too_much_is_refused(text: str, why: str) -> None:
    with pytest.raises(UnreadableYAML, match=why):
        read_yaml(text)
    assert read_yaml("a: [1, 2]")[0] == {"a": [1, 2]}


def test_a_call_that_is_nested_for_ever_is_none() -> None:
    """What a model writes, in the notation of Gemma."""

    def call(depth: int) -> str:
        return f"<|tool_call>call:add{{n: {'[' * depth}1{']' * depth}}}<tool_call|>"

    (fine,) = formats.regions_in(call(formats.MAX_DEPTH - 2))
    assert fine.calls and not fine.why
    for depth in (formats.MAX_DEPTH + 1, 1000):
        (region,) = formats.regions_in(call(depth))
        assert not region.calls and region.why is not None and "nested too deeply" in region.why


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    files = tmp_path / "repository" / "envs" / "a_env"
    files.mkdir(parents=True)
    (files / "openenv.yaml").write_text("name: a\n")
    (files / "README.md").write_text("x" * 3000)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "a"]):
        subprocess.run(["git", *command], cwd=tmp_path / "repository", check=True)
    return tmp_path / "repository"


def test_a_file_of_a_repository_has_at_most_so_many_bytes(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openenv.hub.catalog.repository.MOST_BYTES", 1000)
    files = GitSnapshot(repository)
    with pytest.raises(CatalogError, match=r"README\.md is larger than"):
        files.read("envs/a_env/README.md")
    assert files.read("envs/a_env/openenv.yaml") == b"name: a\n"


def test_a_catalogue_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """In its true size, by a file of holes."""
    file = tmp_path / "catalog.json"
    with file.open("wb") as written:
        written.truncate(16 * MIB + 1)
    with kept_below(8 * MIB), pytest.raises(CatalogError, match="is larger than 16 MiB"):
        load_catalog(file)


def test_a_source_to_be_copied_has_at_most_256_mebibytes(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "games.py").write_text("x = 1\n")
    with (tmp_path / "mine" / "weights.bin").open("wb") as written:
        written.truncate(256 * MIB)
    with kept_below(8 * MIB), pytest.raises(CommandError, match="at most 268 are copied"):
        read_source(str(tmp_path / "mine"))
    (tmp_path / "mine" / "weights.bin").unlink()
    assert any(path.endswith("games.py") for path in read_source(str(tmp_path / "mine")).files)


def test_an_oracle_answers_with_so_much_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openenv.validation.oracle.MAX_ANSWER_BYTES", MIB)
    path = tmp_path / "oracle.py"
    path.write_text("def oracle(view):\n    return {'say': 'x' * view.observation['count']}\n")
    program, neighbour = OracleProgram(path, tmp_path), OracleProgram(path, tmp_path)
    try:
        assert program.call("oracle", ProbeView({"count": 3}, 0)) == {"say": "xxx"}
        with kept_below(32 * MIB), pytest.raises(OracleError, match=f"more than {MIB} bytes"):
            program.call("oracle", ProbeView({"count": 64 * MIB}, 0))
        assert program._process.poll() is not None, "it was ended"
        assert neighbour.call("oracle", ProbeView({"count": 2}, 0)) == {"say": "xx"}
    finally:
        program.close()
        neighbour.close()
