"""Clones of a git server: git itself over HTTP, behind what Gitea's API answers.

Gitea is in no package index that tests may install from. What stands for it here is git's own
`http-backend`, with a login, and the one path of the API that is used, as its documentation has it.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from openenv.core.tools import GitServerClient, RepoInfo

USER, PASSWORD = "gitea", "the secret"
LOGIN = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def git(*command: str, cwd: Path) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Server:
    """A server of the repositories of a directory; counts what is asked of git."""

    def __init__(self, root: Path) -> None:
        self.root, self.asked, self.logins = root, 0, set[str | None]()
        self.knows_pages = True
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                if url.path == "/":
                    self.answer(200, b"Gitea")
                elif self.headers.get("Authorization") != LOGIN:
                    self.answer(401, b'{"message": "invalid username or password"}')
                elif url.path == "/api/v1/user/repos":
                    self.answer(200, json.dumps(server.listed(parse_qs(url.query))).encode())
                else:
                    self.run_git(url.path, url.query)

            do_POST = do_GET

            def answer(self, code: int, body: bytes) -> None:
                self.send_response(code)
                if code == 401:
                    self.send_header("WWW-Authenticate", 'Basic realm="Gitea"')
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def run_git(self, path: str, query: str) -> None:
                server.asked += 1
                server.logins.add(self.headers.get("Authorization"))
                size = int(self.headers.get("Content-Length") or 0)
                done = subprocess.run(
                    ["git", "http-backend"],
                    input=self.rfile.read(size),
                    capture_output=True,
                    check=True,
                    env={
                        **os.environ,
                        "GIT_PROJECT_ROOT": str(server.root),
                        "GIT_HTTP_EXPORT_ALL": "1",
                        "PATH_INFO": path,
                        "QUERY_STRING": query,
                        "REQUEST_METHOD": self.command,
                        "REMOTE_USER": USER,
                        "CONTENT_TYPE": self.headers.get("Content-Type") or "",
                        "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
                    },
                )
                head, _, body = done.stdout.partition(b"\r\n\r\n")
                headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
                self.send_response(int(headers.pop("Status", "200").split()[0]))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.02])
        self._thread.start()

    def listed(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        names = sorted(path.stem for path in (self.root / USER).glob("*.git"))
        size, page = int(query["limit"][0]), int(query["page"][0]) if self.knows_pages else 1
        return [
            {
                "id": 1,
                "name": name,
                "full_name": f"{USER}/{name}",
                "clone_url": f"{self.url}/{USER}/{name}.git",
                "description": None,
            }
            for name in names[(page - 1) * size : page * size]
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Where the repository is worked on: two commits on main, and a branch."""
    bare = tmp_path / "server" / USER / "project.git"
    bare.mkdir(parents=True)
    git("init", "--quiet", "--bare", cwd=bare)
    work = tmp_path / "source"
    git("clone", "--quiet", str(bare), str(work), cwd=tmp_path)
    git("checkout", "--quiet", "-b", "main", cwd=work)
    for text in ("one", "two"):
        add(work, text)
    git("push", "--quiet", "origin", "main", "main:refs/heads/side", cwd=work)
    return work


def add(work: Path, text: str) -> str:
    (work / "file.txt").write_text(text)
    git("add", "-A", cwd=work)
    git("commit", "--quiet", "-m", text, cwd=work)
    return git("rev-parse", "HEAD", cwd=work)


@pytest.fixture
def server(source: Path) -> Iterator[Server]:
    server = Server(source.parent / "server")
    yield server
    server.close()


@pytest.fixture
def client(server: Server, tmp_path: Path) -> GitServerClient:
    client = GitServerClient(server.url, USER, PASSWORD, tmp_path / "workspace")
    assert client.wait_for_ready(10)
    return client


def test_repositories_are_listed_cloned_changed_and_set_back(
    client: GitServerClient, server: Server, source: Path
) -> None:
    (found,) = client.list_repositories()
    assert found["full_name"] == "gitea/project" and found["description"] == ""
    first, second = git("rev-list", "--reverse", "main", cwd=source).split()

    clone = Path(client.clone_to_workspace("project", commit=first))
    assert clone == client.workspace_dir.resolve() / "project"
    assert (clone / "file.txt").read_text() == "one"
    assert client.get_current_commit("project") == first and client.workspace_exists("project")

    (clone / "file.txt").write_text("changed")
    (clone / "new").mkdir()
    (clone / "new" / "more.txt").touch()
    asked = server.asked
    assert client.reset_workspace("project", commit=second) is True
    assert server.asked == asked, "what is there needs no server"
    assert (clone / "file.txt").read_text() == "two" and not (clone / "new").exists()
    assert server.logins == {LOGIN}


def test_a_branch_is_what_the_server_has_and_a_new_commit_is_fetched(
    client: GitServerClient, source: Path
) -> None:
    clone = Path(client.clone_to_workspace("project", "elsewhere/here"))
    add(clone, "of this clone")
    client.reset_workspace("elsewhere/here", "main")
    assert (clone / "file.txt").read_text() == "two"
    client.reset_workspace("elsewhere/here", "side")
    new = add(source, "three")
    git("push", "--quiet", "origin", "main", cwd=source)
    client.reset_workspace("elsewhere/here", new)
    assert (clone / "file.txt").read_text() == "three"


def test_commands_of_git_are_run_and_say_how_they_ended(client: GitServerClient) -> None:
    client.clone_to_workspace("project")
    code, out, err = client.execute_git_command("log --format=%s -n 1", "project")
    assert (code, out, err) == (0, "two\n", "")
    assert client.execute_git_command("git branch --show-current", "project")[1] == "main\n"
    code, _, err = client.execute_git_command("no-such-command", "project")
    assert code == 1 and "no-such-command" in err
    code, _, err = client.execute_git_command("status")  # the workspace itself is no repository
    assert code == 128 and "not a git repository" in err
    assert client.execute_git_command("status", "nowhere")[:2] == (1, "")
    assert "leads out of" in client.execute_git_command("status", "../..")[2]
    assert "quotation" in client.execute_git_command("log 'it", "project")[2]
    code, out, _ = client.execute_git_command("log -n 1; echo more", "project")
    assert code != 0 and "more" not in out, "no shell reads it"


def test_the_password_is_in_no_file_and_goes_to_no_other_server(
    client: GitServerClient, tmp_path: Path
) -> None:
    clone = Path(client.clone_to_workspace("project"))
    config = (clone / ".git" / "config").read_text()
    assert PASSWORD not in config and "Authorization" not in config
    assert "secret" not in repr(client)
    other = Server(tmp_path / "server")
    try:
        code, _, err = client.execute_git_command(f"ls-remote {other.url}/{USER}/project.git")
        assert code and "could not read Username" in err and not other.logins
    finally:
        other.close()


def test_what_fails_says_why_and_leaves_what_is_there(
    client: GitServerClient, server: Server, tmp_path: Path
) -> None:
    clone = Path(client.clone_to_workspace("project"))
    with pytest.raises(RuntimeError, match="project has no nothing"):
        client.clone_to_workspace("project", commit="nothing")
    with pytest.raises(RuntimeError, match="missing is not cloned"):
        client.clone_to_workspace("missing", "project")
    assert (clone / "file.txt").read_text() == "two"
    assert [path.name for path in client.workspace_dir.iterdir()] == ["project"]
    with pytest.raises(RuntimeError, match=r"absent is not in .*; clone it first"):
        client.reset_workspace("absent")
    with pytest.raises(RuntimeError, match="the commit of absent is not known"):
        client.get_current_commit("absent")
    for commit in ("--output=/etc/passwd", ""):
        with pytest.raises(ValueError, match="commit="):
            client.clone_to_workspace("project", commit=commit)
    for target in ("../out", "/out", "."):
        with pytest.raises(ValueError, match=r"leads out of|is the workspace itself"):
            client.clone_to_workspace("project", target)

    stranger = GitServerClient(server.url, USER, "wrong", tmp_path / "workspace")
    with pytest.raises(RuntimeError, match="not ready"):
        stranger.clone_to_workspace("project")
    assert stranger.wait_for_ready()
    with pytest.raises(RuntimeError, match=r"HTTP 401 .*invalid username or password"):
        stranger.list_repositories()
    with pytest.raises(RuntimeError, match="project is not cloned"):
        stranger.clone_to_workspace("project")


def test_more_than_a_page_of_repositories_is_listed(
    client: GitServerClient, server: Server
) -> None:
    for number in range(60):
        (server.root / USER / f"empty-{number}.git").mkdir()
    assert len(client.list_repositories()) == 61


def test_a_server_that_knows_no_pages_is_not_asked_for_ever(
    client: GitServerClient, server: Server
) -> None:
    server.knows_pages = False
    with pytest.raises(RuntimeError, match="lists nothing new as page 2 of the repositories"):
        client.list_repositories()


def test_a_server_that_is_not_there_is_waited_for_so_long(tmp_path: Path) -> None:
    client = GitServerClient("http://127.0.0.1:9", USER, PASSWORD, tmp_path)
    assert client.wait_for_ready(0.3) is False and not client.is_ready
    with pytest.raises(ValueError, match="gitea_url='gitea:3000'"):
        GitServerClient("gitea:3000", USER, PASSWORD, tmp_path)


def test_what_is_told_of_a_repository_is_compared_by_value() -> None:
    one = RepoInfo("a", "http://h/a", "main", "http://h/a.git")
    assert one == RepoInfo(name="a", url="http://h/a", commit="main", clone_url="http://h/a.git")
