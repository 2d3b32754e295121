"""Looking at servers that run: what is asked, and what the report says of each answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from support.dice import Dice
from support.rawserver import Peer, raw_server
from support.servers import serving

from openenv import create_app
from openenv.validation.server_criteria import ServerReport, inspect_server
from openenv.validation.wire import fetch_page

PATHS: dict[str, dict[str, object]] = {"/reset": {}, "/step": {}, "/state": {}}
GOOD: dict[str, tuple[int, Any]] = {
    "/openapi.json": (200, {"info": {"version": "1.2.3"}, "paths": PATHS}),
    "/health": (200, {"status": "healthy"}),
    "/metadata": (200, {"name": "n", "description": "d"}),
    "/schema": (200, {"action": {}, "observation": {}, "state": {}}),
    "/mcp": (200, {"jsonrpc": "2.0"}),
}


@contextmanager
def answering(**changed: tuple[int, Any]) -> Iterator[str]:
    """A server that answers so."""
    answers = {**GOOD, **{f"/{name.replace('_', '.')}": value for name, value in changed.items()}}

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            pass

        def do_GET(self) -> None:
            status, body = answers[self.path]
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def looked_at(**changed: tuple[int, Any]) -> ServerReport:
    with answering(**changed) as url:
        return inspect_server(url)


def test_our_own_server_has_everything() -> None:
    with serving(create_app(Dice)) as url:
        report = inspect_server(url)
    assert report.passed, report.as_data()
    assert (report.mode, report.profile) == ("simulation", "openenv-http/1.x")


@pytest.mark.slow
def test_the_report_has_the_keys_of_the_public_package() -> None:
    data = looked_at().as_data()
    assert list(data) == [
        "target",
        "validation_type",
        "standard_version",
        "standard_profile",
        "mode",
        "passed",
        "summary",
        "criteria",
    ]
    assert data["validation_type"] == "running_environment"
    assert data["summary"] == {
        "passed_count": 6,
        "total_count": 6,
        "failed_criteria": [],
        "required_passed_count": 6,
        "required_total_count": 6,
    }
    assert [one["id"] for one in data["criteria"]] == [
        "openapi_version_available",
        "health_endpoint",
        "metadata_endpoint",
        "schema_endpoint",
        "mcp_endpoint",
        "mode_endpoint_consistency",
    ]
    assert data["criteria"][3] == {
        "id": "schema_endpoint",
        "description": data["criteria"][3]["description"],
        "passed": True,
        "required": True,
        "expected": {"status_code": 200, "fields": ["action", "observation", "state"]},
        "actual": {
            "status_code": 200,
            "has_action": True,
            "has_observation": True,
            "has_state": True,
        },
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "failed", "mode", "profile"),
    [
        ({"health": (500, {"status": "healthy"})}, ["health_endpoint"], "simulation", "1.x"),
        ({"health": (200, b"nope")}, ["health_endpoint"], "simulation", "1.x"),
        ({"metadata": (200, {"name": "n"})}, ["metadata_endpoint"], "simulation", "1.x"),
        ({"schema": (200, {"action": {}})}, ["schema_endpoint"], "simulation", "1.x"),
        ({"mcp": (404, {})}, ["mcp_endpoint"], "simulation", "1.x"),
        (
            {"openapi_json": (200, {"info": {"version": "1.0"}, "paths": {"/health": {}}})},
            [],
            "production",
            "1.x",
        ),
        (
            {"openapi_json": (200, {"info": {"version": "1.0"}, "paths": {"/step": {}}})},
            ["mode_endpoint_consistency"],
            "production",
            "1.x",
        ),
        (
            {"openapi_json": (200, {"info": {"version": "2.0"}, "paths": {"/reset": {}}})},
            ["mode_endpoint_consistency"],
            "simulation",
            "unknown",
        ),
        (
            {"openapi_json": (200, {"info": {}, "paths": PATHS})},
            ["openapi_version_available", "mode_endpoint_consistency"],
            "unknown",
            "unknown",
        ),
    ],
)
def test_what_is_missing_is_named(
    changed: dict[str, tuple[int, Any]], failed: list[str], mode: str, profile: str
) -> None:
    report = looked_at(**changed)
    assert report.as_data()["summary"]["failed_criteria"] == failed
    assert (report.mode, report.profile) == (mode, f"openenv-http/{profile}")
    assert report.passed is (not failed)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[bad", "http://a b"])
def test_where_nothing_answers_everything_fails_and_nothing_is_raised(url: str) -> None:
    report = inspect_server(url)
    assert not any(one.passed for one in report.criteria)
    assert (report.mode, report.version) == ("unknown", "unknown")
    assert "actual" not in report.criteria[0].as_data()


def test_an_answer_that_is_no_http_is_what_was_found() -> None:
    def babbles(peer: Peer) -> None:
        peer.read_head()
        peer.socket.sendall(b"\x00 no HTTP\r\n\r\n")

    with raw_server(babbles) as port:
        found = fetch_page(f"http://127.0.0.1:{port}", "/health")
    assert found.failure is not None and "BadStatusLine" in found.failure


def test_an_answer_that_comes_in_drops_is_not_waited_for_without_end() -> None:
    def drips(peer: Peer) -> None:
        peer.read_head()
        peer.socket.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        with suppress(OSError):
            for _ in range(1000):
                peer.socket.sendall(b"a")
                time.sleep(0.02)

    with raw_server(drips) as port:
        found = fetch_page(f"http://127.0.0.1:{port}", "/health", timeout_s=0.1)
    assert found.failure is not None and "did not end in time" in found.failure
