"""A stand-in for the Hugging Face Hub: as much of it as data sets and Spaces need, over its HTTP.

    with hub(token="hf_right") as server:      # HF_ENDPOINT is server.url
        ...
        assert server.files["acme/x"]["README.md"] == b"..."

By hand, from the directory `tests`: ``python -m support.hub_server --port 8090`` says which
variables to set. Repositories are kept in memory, by commits; private ones are seen by those who
may write to them. Spaces go through `server.stages`, one further each time that somebody looks.

Large files go by git-lfs: they are asked for by their digest, so what is there is not sent again.
With `server.stalls`, only the first of them arrives, and others are read by nobody. What fails is
set by `server.fail(...)`, `server.cuts` (so many large uploads break after `cuts_after` bytes),
`server.quota_bytes` and `server.paid_hardware`.
Source: https://huggingface.co/docs/hub/api, and what huggingface_hub asks.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import json
import re
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "hf_a_token_that_may_write"
KIND = "(?P<kind>models|datasets|spaces)"
REPO = "(?P<repo>[^/]+/[^/]+)"
REVISION = "(?P<revision>[^/]+)"


class Answer(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, said: str, code: str = "", **headers: str) -> None:
        self.status, self.said = status, said
        self.headers = {"X-Error-Message": said, **({"X-Error-Code": code} if code else {})}
        self.headers |= {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass
class User:
    """Whose a token is, and what it may."""

    name: str = "me"
    organizations: tuple[str, ...] = ("acme",)
    may_write: bool = True


@dataclass
class Failure:
    """What is answered instead to requests whose ``METHOD /path`` fits a pattern."""

    pattern: str
    answer: Answer
    times: int


@dataclass
class Repository:
    """A repository; `history` holds the files of each commit, the newest last."""

    kind: str
    name: str
    private: bool
    history: dict[str, dict[str, bytes]] = field(default_factory=dict)
    proposals: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    hardware: str = "cpu-basic"
    looks: int = 0

    @property
    def sha(self) -> str:
        """The newest commit that is no proposal."""
        return [one for one in self.history if one not in self.proposals][-1]

    def add(self, files: dict[str, bytes]) -> str:
        """Add a commit, and give its name."""
        text = f"{self.name} {len(self.history)} {sorted(files)}"
        sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self.history[sha] = files
        self.looks = 0
        return sha


@dataclass
class HubServer:
    """A hub, and what it was sent."""

    token: str
    large_from: int = 1000
    stalls: bool = False
    cuts_after: int = 0
    cuts: int = 0
    quota_bytes: int | None = None
    paid_hardware: tuple[str, ...] = ("t4-small", "a100-large")
    stages: tuple[str, ...] = ("BUILDING", "APP_STARTING", "RUNNING")
    build_log: tuple[str, ...] = ("Step 1/2 : FROM python", "Step 2/2 : RUN pip install .")
    run_log: tuple[str, ...] = ("Uvicorn running on http://0.0.0.0:8000",)
    build_error: str = ""
    url: str = ""
    users: dict[str, User] = field(default_factory=dict)
    repositories: dict[str, Repository] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    commits: list[dict[str, Any]] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    received: bytes = b""
    going_on: threading.Event = field(default_factory=threading.Event)
    lock: threading.RLock = field(default_factory=threading.RLock)
    has_begun: bool = False

    def __post_init__(self) -> None:
        self.users.setdefault(self.token, User())

    @property
    def files(self) -> dict[str, dict[str, bytes]]:
        """The newest files of each repository."""
        return {name: one.history[one.sha] for name, one in self.repositories.items()}

    @property
    def private(self) -> dict[str, bool]:
        """Which repositories are private."""
        return {name: one.private for name, one in self.repositories.items()}

    def fail(
        self, pattern: str, status: int, said: str = "", times: int = 1000, **headers: str
    ) -> None:
        """Answer requests with a failure, `times` times; the pattern is of ``METHOD /path``."""
        self.failures.append(Failure(pattern, Answer(status, said, **headers), times))

    def make(self, name: str, files: dict[str, bytes], *, private: bool = False) -> Repository:
        """Make a Space."""
        made = Repository("spaces", name, private)
        made.add({})
        made.add(files)
        self.repositories[name] = made
        return made


# ------------------------------------------------------------------ requests

Route = tuple[str, "re.Pattern[str]", str]
ROUTES: list[Route] = [
    (method, re.compile(path), name)
    for method, path, name in (
        ("GET", "/api/whoami-v2", "whoami"),
        ("POST", "/api/validate-yaml", "validate"),
        ("POST", "/api/repos/create", "create"),
        ("DELETE", "/api/repos/delete", "remove"),
        ("POST", f"/api/{KIND}/{REPO}/preupload/{REVISION}", "preupload"),
        ("POST", f"/(?:{KIND}/)?{REPO}.git/info/lfs/objects/batch", "batch"),
        ("POST", "/lfs-verify", "verify"),
        ("POST", f"/api/{KIND}/{REPO}/commit/{REVISION}", "commit"),
        ("GET", f"/api/{KIND}/{REPO}/tree/{REVISION}(?:/.*)?", "tree"),
        ("GET", f"/api/{KIND}/{REPO}/revision/{REVISION}", "info"),
        ("(?:GET|HEAD)", f"/(?:{KIND}/)?{REPO}/resolve/{REVISION}/(?P<path>.+)", "resolve"),
        ("GET|POST|DELETE", f"/api/spaces/{REPO}/(?P<what>variables|secrets)", "settings"),
        ("POST", f"/api/spaces/{REPO}/hardware", "hardware"),
        ("GET", f"/api/spaces/{REPO}/runtime", "runtime"),
        ("GET", f"/api/spaces/{REPO}/logs/(?P<what>build|run)", "logs"),
        ("POST", f"/api/{KIND}/{REPO}/duplicate", "duplicate"),
        ("GET", f"/api/{KIND}/{REPO}", "info"),
    )
]


def _handler(server: HubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(Requests):
        hub = server

    return Handler


class Requests(BaseHTTPRequestHandler):
    """Answers requests, from the state of one `HubServer`."""

    protocol_version = "HTTP/1.1"
    hub: HubServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer("GET")

    do_HEAD = do_POST = do_DELETE = lambda self: self._answer(self.command)

    def do_PUT(self) -> None:
        oid = self.path.removeprefix("/lfs/")
        with self.hub.lock:  # they come at the same time
            self.hub.asked.append(f"PUT {self.path}")
            is_first, self.hub.has_begun = not self.hub.has_begun, True
        if self.hub.stalls and not is_first:
            self.hub.going_on.wait(30)
            self.close_connection = True
            return
        if self.hub.cuts and int(self.headers.get("content-length") or 0) > self.hub.cuts_after:
            self.hub.cuts -= 1
            self.rfile.read(self.hub.cuts_after)
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.hub.objects[oid] = self._read()
        self._json({})

    def _answer(self, method: str) -> None:
        body = self._read()
        path = unquote(urlsplit(self.path).path)
        with self.hub.lock:
            self.hub.asked.append(f"{method} {self.path}")
            try:
                self._inject(f"{method} {path}")
                for wanted, pattern, name in ROUTES:
                    found = pattern.fullmatch(path)
                    if found is not None and re.fullmatch(wanted, method):
                        given = {k: v for k, v in found.groupdict().items() if v is not None}
                        getattr(self, f"_{name}")(body, **given)
                        return
                raise Answer(404, "Not found")
            except Answer as answer:
                self._json({"error": answer.said}, answer.status, answer.headers)

    def _inject(self, request: str) -> None:
        for one in self.hub.failures:
            if one.times and re.search(one.pattern, request):
                one.times -= 1
                raise one.answer

    # -------------------------------------------------------------- who may what

    def _user(self) -> User | None:
        told = self.headers.get("authorization")
        if told is None:
            return None
        user = self.hub.users.get(told.removeprefix("Bearer "))
        if user is None:
            raise Answer(401, "Invalid credentials in Authorization header")
        return user

    def _writer(self, namespace: str) -> User:
        user = self._user()
        if user is None:
            raise Answer(401, "Invalid username or password.")
        if not user.may_write or namespace not in (user.name, *user.organizations):
            raise Answer(403, f"You don't have the rights to write under the namespace {namespace}")
        return user

    def _repository(self, name: str, kind: str = "spaces", *, to_write: bool = False) -> Repository:
        user = self._user()
        found = self.hub.repositories.get(name)
        owners = () if user is None else (user.name, *user.organizations)
        is_hidden = found is not None and found.private and name.partition("/")[0] not in owners
        if found is None or found.kind != kind or is_hidden:
            raise Answer(401 if user is None else 404, "Repository not found", "RepoNotFound")
        if to_write:
            self._writer(name.partition("/")[0])
        return found

    def _whoami(self, _: bytes) -> None:
        user = self._user()
        if user is None:
            raise Answer(401, "Invalid username or password.")
        role = {"accessToken": {"role": "write" if user.may_write else "read"}}
        organizations = [{"name": one} for one in user.organizations]
        self._json({"type": "user", "name": user.name, "orgs": organizations, "auth": role})

    # -------------------------------------------------------------- repositories

    def _validate(self, body: bytes) -> None:
        """The front matter of a card; one without any is warned of."""
        asked = json.loads(body)
        matter = re.match(r"---\n(.*?)\n---\n", asked["content"], re.DOTALL)
        errors, warnings = [], []
        if matter is not None:
            try:
                said = yaml.safe_load(matter[1])
                if asked.get("repoType") == "dataset":
                    assert said["configs"][0]["data_files"][0]["path"]
                elif asked.get("repoType") == "space":
                    assert said["sdk"] in ("docker", "gradio", "static")
            except (yaml.YAMLError, LookupError, TypeError, AssertionError) as error:
                errors = [{"message": f"the metadata cannot be read: {error!r}"}]
        elif asked.get("repoType") == "space":
            warnings = [{"message": "empty or missing yaml metadata in repo card"}]
        self._json({"errors": errors, "warnings": warnings}, 400 if errors else 200)

    def _create(self, body: bytes) -> None:
        asked = json.loads(body)
        kind = f"{asked.get('type') or 'model'}s"
        owner = asked.get("organization") or getattr(self._user(), "name", "")
        self._writer(owner)
        name = f"{owner}/{asked['name']}"
        if name in self.hub.repositories:
            there = {"url": f"{self.hub.url}/{kind}/{name}", "name": name}
            self._json({"error": f"You already created this {kind[:-1]} repo", **there}, 409)
            return
        self._check_hardware(asked.get("hardware"))
        made = Repository(kind, name, asked.get("visibility") == "private")
        made.hardware = asked.get("hardware") or made.hardware
        made.variables = _named(asked.get("variables"))
        made.secrets = _named(asked.get("secrets"))
        made.add({".gitattributes": b""} if kind == "spaces" else {})
        self.hub.repositories[name] = made
        self._json({"url": f"{self.hub.url}/{kind}/{name}", "name": name})

    def _remove(self, body: bytes) -> None:
        asked = json.loads(body)
        owner = asked.get("organization") or getattr(self._user(), "name", "")
        name, kind = f"{owner}/{asked['name']}", f"{asked.get('type') or 'model'}s"
        self._repository(name, kind, to_write=True)
        del self.hub.repositories[name]
        self._json({})

    def _duplicate(self, body: bytes, kind: str, repo: str) -> None:
        asked = json.loads(body)
        source, target = self._repository(repo, kind), asked["repository"]
        self._writer(target.partition("/")[0])
        if target in self.hub.repositories:
            raise Answer(409, "You already created this space repo")
        self._check_hardware(asked.get("hardware"))
        is_private = source.private
        if "visibility" in asked:
            is_private = asked["visibility"] == "private"
        made = Repository(kind, target, is_private, dict(source.history))
        made.hardware = asked.get("hardware") or made.hardware
        made.variables = dict(source.variables) | _named(asked.get("variables"))
        made.secrets = _named(asked.get("secrets"))
        self.hub.repositories[target] = made
        self._json({"url": f"{self.hub.url}/{kind}/{target}"})

    def _info(self, _: bytes, kind: str, repo: str, revision: str = "main") -> None:
        found = self._repository(repo, kind)
        sha = self._sha(found, revision)
        about = {"id": repo, "sha": sha, "private": found.private, "tags": [], "sdk": "docker"}
        siblings = [{"rfilename": path} for path in sorted(found.history[sha])]
        when = datetime(2026, 11, 25, tzinfo=timezone.utc).isoformat().replace("+00:00", ".000Z")
        self._json({**about, "siblings": siblings, "lastModified": when})

    def _sha(self, found: Repository, revision: str) -> str:
        revision = unquote(revision)
        if revision == "main":
            return found.sha
        if pull := re.fullmatch(r"refs/pr/(\d+)", revision):
            return found.proposals[int(pull[1]) - 1]
        fitting = [sha for sha in found.history if sha.startswith(revision)]
        if len(fitting) != 1 or len(revision) < 7:
            raise Answer(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return fitting[0]

    def _tree(self, _: bytes, kind: str, repo: str, revision: str) -> None:
        found = self._repository(repo, kind)
        files = found.history[self._sha(found, revision)]
        self._json([self._entry(path, files[path]) for path in sorted(files)])

    def _entry(self, path: str, content: bytes) -> dict[str, Any]:
        entry = {"type": "file", "path": path, "size": len(content), "oid": _git_oid(content)}
        if len(content) < self.hub.large_from:
            return entry
        oid = hashlib.sha256(content).hexdigest()
        return {**entry, "lfs": {"oid": oid, "size": len(content), "pointerSize": 130}}

    def _resolve(self, _: bytes, repo: str, revision: str, path: str, kind: str = "models") -> None:
        found = self._repository(repo, kind)
        sha = self._sha(found, revision)
        content = found.history[sha].get(path)
        if content is None:
            raise Answer(404, "Entry not found", "EntryNotFound")
        entry = self._entry(path, content)
        etag = entry.get("lfs", entry)["oid"]
        self._bytes(content, headers={"ETag": f'"{etag}"', "X-Repo-Commit": sha})

    # -------------------------------------------------------------- uploads

    def _preupload(self, body: bytes, kind: str, repo: str, revision: str) -> None:
        is_proposal = "create_pr=1" in self.path
        there = self._repository(repo, kind, to_write=not is_proposal)
        files = there.history[self._sha(there, revision)]
        told = []
        for one in json.loads(body)["files"]:
            is_large = one["size"] >= self.hub.large_from
            known = files.get(one["path"])
            oid = None
            if known is not None:
                oid = hashlib.sha256(known).hexdigest() if is_large else _git_oid(known)
            mode = "lfs" if is_large else "regular"
            told.append(
                {"path": one["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid}
            )
        self._json({"files": told})

    def _batch(self, body: bytes, repo: str, kind: str = "models") -> None:
        self._repository(repo, kind)
        told = []
        for one in json.loads(body)["objects"]:
            if one["oid"] in self.hub.objects:
                told.append({**one})
                continue
            href = {"href": f"{self.hub.url}/lfs/{one['oid']}"}
            verify = {"href": f"{self.hub.url}/lfs-verify", "header": {}}
            told.append({**one, "actions": {"upload": href, "verify": verify}})
        self._json({"transfer": "basic", "objects": told})

    def _verify(self, body: bytes) -> None:
        asked = json.loads(body)
        content = self.hub.objects.get(asked["oid"])
        if content is None or len(content) != asked["size"]:
            raise Answer(404, "the object is not there")
        self._json({})

    def _commit(self, body: bytes, kind: str, repo: str, revision: str) -> None:
        is_proposal = "create_pr=1" in self.path
        found = self._repository(repo, kind, to_write=not is_proposal)
        files = dict(found.history[self._sha(found, revision)])
        header: dict[str, Any] = {}
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                header = value
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.hub.objects:
                    raise Answer(400, f"the object of {value['path']} was not uploaded")
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        quota = self.hub.quota_bytes
        if quota is not None and sum(map(len, files.values())) > quota:
            raise Answer(403, "Storage limit reached for this account. Please free some storage.")
        sha = found.add(files)
        self.hub.commits.append(header)
        told = {"commitOid": sha, "commitUrl": f"{self.hub.url}/{kind}/{repo}/commit/{sha}"}
        if is_proposal:
            found.proposals.append(sha)
            number = len(found.proposals)
            told["pullRequestUrl"] = f"{self.hub.url}/{kind}/{repo}/discussions/{number}"
        self._json({"success": True, **told})

    # -------------------------------------------------------------- spaces

    def _check_hardware(self, wanted: str | None) -> None:
        if wanted in self.hub.paid_hardware:
            raise Answer(402, f"Payment required: add a card to use {wanted}")

    def _settings(self, body: bytes, repo: str, what: str) -> None:
        found = self._repository(repo, to_write=True)
        values = found.variables if what == "variables" else found.secrets
        if self.command == "POST":
            asked = json.loads(body)
            values[asked["key"]] = asked["value"]
        elif self.command == "DELETE":
            del values[json.loads(body)["key"]]
        seen = what == "variables"
        self._json({name: {"value": value} if seen else {} for name, value in values.items()})

    def _hardware(self, body: bytes, repo: str) -> None:
        found = self._repository(repo, to_write=True)
        wanted = json.loads(body)["flavor"]
        self._check_hardware(wanted)
        found.hardware = wanted
        self._runtime(b"", repo)

    def _runtime(self, _: bytes, repo: str) -> None:
        found = self._repository(repo)
        stages = self.hub.stages
        stage = stages[min(found.looks, len(stages) - 1)]
        found.looks += 1
        told = {"stage": stage, "hardware": {"current": None, "requested": found.hardware}}
        if stage.startswith("RUNNING"):
            told["hardware"] = {"current": found.hardware, "requested": found.hardware}
        why = {"errorMessage": self.hub.build_error} if "ERROR" in stage else {}
        self._json({**told, "storage": None, "gcTimeout": None, "sha": found.sha, **why})

    def _logs(self, _: bytes, repo: str, what: str) -> None:
        self._repository(repo, to_write=True)
        lines = self.hub.build_log if what == "build" else self.hub.run_log
        when = "2026-11-25T00:00:00.000Z"
        events = [json.dumps({"data": f"{line}\n", "timestamp": when}) for line in lines]
        content = "".join(f"data: {event}\n\n" for event in events).encode()
        self._bytes(content, headers={"Content-Type": "text/event-stream"})

    # -------------------------------------------------------------- bytes

    def _read(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.hub.received += body
        return body

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        kind = {"Content-Type": "application/json"}
        self._bytes(json.dumps(value).encode(), status, {**kind, **(headers or {})})

    def _bytes(
        self, content: bytes, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _named(pairs: list[dict[str, str]] | None) -> dict[str, str]:
    return {one["key"]: one["value"] for one in pairs or ()}


def _git_oid(content: bytes) -> str:
    whole = f"blob {len(content)}\0".encode() + content
    return hashlib.sha1(whole, usedforsecurity=False).hexdigest()


# ------------------------------------------------------------------ serving


@contextlib.contextmanager
def hub(token: str = TOKEN, port: int = 0) -> Iterator[HubServer]:
    """Serve until the block ends."""
    server = HubServer(token)
    http = ThreadingHTTPServer(("127.0.0.1", port), _handler(server))
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


def main() -> None:
    """Serve by hand."""
    parser = argparse.ArgumentParser(description="A Hub on this machine, kept in memory.")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--token", default=TOKEN, help="the one that may write, as the user `me`")
    asked = parser.parse_args()
    with hub(asked.token, asked.port) as server:
        for name, value in (("HF_ENDPOINT", server.url), ("HF_TOKEN", asked.token)):
            sys.stdout.write(f"export {name}={value}\n")
        sys.stdout.write("export HF_HUB_DISABLE_XET=1\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
