"""As much of the Hugging Face hub as it takes to put a data set there, over its real HTTP.

    with hub(token="hf_right") as server:      # HF_ENDPOINT is server.url
        ...
        assert server.files["acme/x"]["README.md"] == b"..."

Large files go by git-lfs: they are asked for by their digest, so what is there is not sent again.
With `server.stalls`, only the first of them arrives, and others are read by nobody.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

COMMIT = "c0" * 20


@dataclass
class HubServer:
    """A hub, and what it was sent."""

    token: str
    large_from: int = 1000
    stalls: bool = False
    url: str = ""
    private: dict[str, bool] = field(default_factory=dict)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    commits: list[dict[str, Any]] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    received: bytes = b""
    going_on: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    has_begun: bool = False


def _handler(server: HubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._read()
            server.asked.append(f"GET {self.path}")
            self._json({"error": "Not found"}, 404)

        def do_PUT(self) -> None:
            server.asked.append(f"PUT {self.path}")
            oid = self.path.removeprefix("/lfs/")
            with server.lock:  # they come at the same time
                is_first, server.has_begun = not server.has_begun, True
            if server.stalls and not is_first:
                server.going_on.wait(30)
                self.close_connection = True
                return
            server.objects[oid] = self._read()
            self._json({})

        def do_POST(self) -> None:
            body = self._read()
            server.asked.append(f"POST {self.path}")
            if self.headers.get("authorization") != f"Bearer {server.token}":
                self._json({"error": "Invalid username or password."}, 401)
                return
            if self.path == "/api/validate-yaml":
                self._validate(json.loads(body)["content"])
            elif self.path == "/api/repos/create":
                self._create(json.loads(body))
            elif found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/preupload/main", self.path):
                self._preupload(found[1], json.loads(body))
            elif self.path.endswith(".git/info/lfs/objects/batch"):
                self._batch(json.loads(body))
            elif found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/commit/main", self.path):
                self._commit(found[1], body)
            else:
                self._json({"error": "Not found"}, 404)

        def _validate(self, card: str) -> None:
            """The front matter of a card; one without any is warned of."""
            matter = re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)
            errors = []
            if matter is not None:
                try:
                    configs = yaml.safe_load(matter[1])["configs"]
                    assert configs[0]["data_files"][0]["path"]
                except (yaml.YAMLError, LookupError, TypeError, AssertionError) as error:
                    errors = [{"message": f"the metadata cannot be read: {error}"}]
            self._json({"errors": errors, "warnings": []}, 400 if errors else 200)

        def _create(self, asked: dict[str, Any]) -> None:
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            if name in server.files:
                there = {"url": f"{server.url}/datasets/{name}", "name": name}
                self._json({"error": "You already created this dataset repo", **there}, 409)
                return
            server.files[name] = {}
            server.private[name] = asked.get("visibility") == "private"
            self._json({"url": f"{server.url}/datasets/{name}", "name": name})

        def _preupload(self, repo: str, asked: dict[str, Any]) -> None:
            told = [
                {
                    "path": one["path"],
                    "uploadMode": "lfs" if one["size"] >= server.large_from else "regular",
                    "shouldIgnore": False,
                    "oid": None,
                }
                for one in asked["files"]
            ]
            self._json({"files": told})

        def _batch(self, asked: dict[str, Any]) -> None:
            told = []
            for one in asked["objects"]:
                there = one["oid"] in server.objects
                href = {"upload": {"href": f"{server.url}/lfs/{one['oid']}"}}
                told.append({**one} if there else {**one, "actions": href})
            self._json({"transfer": "basic", "objects": told})

        def _commit(self, repo: str, body: bytes) -> None:
            lines = [json.loads(line) for line in body.splitlines()]
            files = server.files[repo]
            for line in lines:
                value = line["value"]
                if line["key"] == "header":
                    server.commits.append(value)
                elif line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = server.objects[value["oid"]]
            url = f"{server.url}/datasets/{repo}/commit/{COMMIT}"
            self._json({"success": True, "commitOid": COMMIT, "commitUrl": url})

        def _read(self) -> bytes:
            if self.headers.get("transfer-encoding") == "chunked":
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
            server.received += body
            return body

        def _json(self, value: Any, status: int = 200) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler


@contextlib.contextmanager
def hub(token: str = "hf_a_token_that_may_write") -> Iterator[HubServer]:
    """Serve until the block ends."""
    server = HubServer(token)
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.going_on.set()
        http.shutdown()
        thread.join(5)
        http.server_close()
