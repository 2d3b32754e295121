"""As much of the Hugging Face hub as it takes to load a data set of it, of files in a directory.

python hub_server.py DIRECTORY COMMIT prints its address, and serves until standard input ends.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

REPO = "acme/sums"


class Hub(BaseHTTPRequestHandler):
    """One data set, at one commit. The tag ``v1`` is that; so is the branch ``main``, but once
    somebody has asked what it is, it is another one, of which there are no files.
    """

    directory: Path
    commit: str
    main: str

    def log_message(self, *_: Any) -> None:
        sys.stderr.write(f"{self.command} {self.path}\n")

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        api = f"/api/datasets/{REPO}"
        if path == api or path.startswith(f"{api}/revision/"):
            revision = path.removeprefix(api).removeprefix("/revision/") or "main"
            self._info(revision)
        elif path.startswith(f"{api}/tree/{self.commit}"):
            self._tree(path.removeprefix(f"{api}/tree/{self.commit}").strip("/"))
        elif path.startswith(f"/datasets/{REPO}/resolve/"):
            revision, _, name = path.removeprefix(f"/datasets/{REPO}/resolve/").partition("/")
            self._file(revision, name)
        else:
            self._json({"error": "Not found"}, 404)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if "/paths-info/" not in self.path:
            self._json({"error": "Not found"}, 404)
            return
        asked = json.loads(body)["paths"] if body.startswith("{") else []
        self._json([self._entry(f) for f in self._files() if str(self._name(f)) in asked])

    def _tree(self, below: str) -> None:
        place = self.directory / below
        if not place.is_dir():
            self._json({"error": "Not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            return
        deep = "recursive=true" in self.path.lower()
        found = sorted(place.rglob("*") if deep else place.iterdir())
        self._json([self._entry(one) for one in found])

    def _files(self) -> list[Path]:
        return sorted(file for file in self.directory.rglob("*") if file.is_file())

    def _name(self, file: Path) -> str:
        return file.relative_to(self.directory).as_posix()

    def _entry(self, file: Path) -> dict[str, Any]:
        if file.is_dir():
            return {"type": "directory", "oid": "0" * 40, "size": 0, "path": self._name(file)}
        digest = hashlib.sha1(file.read_bytes()).hexdigest()
        return {
            "type": "file",
            "oid": digest,
            "size": file.stat().st_size,
            "path": self._name(file),
        }

    def _info(self, revision: str) -> None:
        if revision not in ("main", "v1", self.commit):
            self._json({"error": "Invalid rev id"}, 404, {"X-Error-Code": "RevisionNotFound"})
            return
        siblings = [{"rfilename": self._name(file)} for file in self._files()]
        commit = type(self).main if revision == "main" else self.commit
        self._json({"id": REPO, "sha": commit, "siblings": siblings, "private": False})
        if revision == "main":
            type(self).main = "b2" * 20

    def _file(self, revision: str, name: str) -> None:
        file = self.directory / name
        if revision != self.commit or not file.is_file():
            self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            return
        content = file.read_bytes()
        digest = hashlib.sha1(content).hexdigest()
        headers = {"ETag": f'"{digest}"', "X-Repo-Commit": self.commit}
        self._send(200, content, "application/octet-stream", headers)

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), "application/json", headers or {})

    def _send(self, status: int, content: bytes, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def main(directory: str, commit: str) -> None:
    Hub.directory, Hub.commit, Hub.main = Path(directory), commit, commit
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
