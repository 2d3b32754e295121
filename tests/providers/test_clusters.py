"""How long a cluster that cannot be reached is waited for, and by which way one is reached."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from openenv.providers import _clusters
from openenv.providers._clusters import Cluster, ClusterError


def kubeconfig(folder: Path, server: str) -> str:
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = folder / "config"
    file.write_text(json.dumps(told))
    return str(file)


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_an_api_server_that_says_nothing_is_given_up(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection is made, and nothing ever comes: neither TLS nor an answer."""
    longest = _clusters.UNREACHABLE_S + _clusters.CONNECT_S
    assert longest < 15 and _clusters.FIRST_ANSWER_S + _clusters.CONNECT_S < 15
    for name in ("CONNECT_S", "FIRST_ANSWER_S", "UNREACHABLE_S"):
        monkeypatch.setattr(_clusters, name, getattr(_clusters, name) / 40)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        cluster = Cluster(kubeconfig(tmp_path, f"{scheme}://127.0.0.1:{port}"))
        began = time.monotonic()
        with pytest.raises(ClusterError, match="does not answer at"):
            cluster.find("Pod", "default", "x")
    assert time.monotonic() - began < 5


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"metadata": {"name": "x"}}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def here() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_cluster_of_this_machine_is_reached_past_proxies(
    here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    found = Cluster(kubeconfig(tmp_path, here)).find("Pod", "default", "x")
    assert found is not None and found["metadata"]["name"] == "x"
