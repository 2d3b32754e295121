"""`GitServerClient`: clones of a Gitea server's repositories that can be reset quickly.

Uses Gitea's API (https://docs.gitea.com/api, version 1) and the installed `git`. Commands run with
the rights of this process: run an agent's commands in a container or an `openenv.sandbox.Sandbox`.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
import shlex
import shutil
import subprocess  # nosec B404  # git, without a shell
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from openenv._internal.json import read_json
from openenv._internal.net.http import ask
from openenv._internal.net.proxies import proxy_for

__all__ = ["GitServerClient", "RepoInfo"]

COMMAND_TIMEOUT_S = 300.0
REQUEST_TIMEOUT_S = 10.0
POLL_S = 0.25
PAGE = 50  # repositories in an answer, Gitea's default limit
TIMED_OUT = 124  # the exit code of `timeout`


@dataclass
class RepoInfo:
    """A repository.

    Attributes:
        name: Name of the repository.
        url: URL of its web page.
        commit: A commit of the repository.
        clone_url: URL to clone from.
    """

    name: str
    url: str
    commit: str
    clone_url: str


class GitServerClient:
    """Clones and resets the repositories of a user of a Gitea server.

        client = GitServerClient("http://gitea:3000", "gitea", "secret")
        if client.wait_for_ready():
            client.clone_to_workspace("my-repo", commit="abc123")
            client.execute_git_command("status", "my-repo")
            client.reset_workspace("my-repo", commit="abc123")

    `git` gets the password in environment variables, so the password is in no file and no process
    list, and is sent only to this server.

    Args:
        gitea_url: URL of the server.
        username: Owner of the repositories, and the user that logs in.
        password: The user's password or token.
        workspace_dir: Directory of the clones; created if missing.

    Raises:
        ValueError: `gitea_url` is not a URL.
    """

    def __init__(
        self,
        gitea_url: str,
        username: str,
        password: str,
        workspace_dir: str | os.PathLike[str] = "/workspace",
    ) -> None:
        if not re.match(r"https?://[^/]", gitea_url):
            raise ValueError(f"gitea_url={gitea_url!r}; expected http://HOST or https://HOST")
        self.gitea_url = gitea_url.rstrip("/")
        self.username = username
        self.password = password
        self.workspace_dir = Path(workspace_dir)
        self.is_ready = False
        self.workspace_dir.mkdir(parents=True, exist_ok=True)

    def __repr__(self) -> str:
        return f"GitServerClient({self.gitea_url!r}, {self.username!r})"

    # ------------------------------------------------------------------ the server

    def wait_for_ready(self, timeout: float = 30) -> bool:
        """Wait at most `timeout` seconds for the server; return whether there was an answer."""
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            try:
                status, _ = ask(f"{self.gitea_url}/", timeout_s=max(0.1, min(left, 5.0)))
                self.is_ready = status < 500
            except OSError:
                self.is_ready = False
            if self.is_ready or time.monotonic() + POLL_S >= deadline:
                return self.is_ready
            time.sleep(POLL_S)

    def list_repositories(self) -> list[dict[str, str]]:
        """Return `name`, `full_name`, `clone_url` and `description` of the user's repositories.

        Raises:
            RuntimeError: The server is not ready, refuses, or repeats a page of the list.
        """
        self._refuse_unless_ready()
        names = ("name", "full_name", "clone_url", "description")
        found: list[dict[str, str]] = []
        for page in itertools.count(1):
            try:
                status, body = ask(
                    f"{self.gitea_url}/api/v1/user/repos?limit={PAGE}&page={page}",
                    {"Authorization": self._login},
                    timeout_s=REQUEST_TIMEOUT_S,
                )
            except OSError as error:
                raise RuntimeError(f"{self.gitea_url} does not answer: {error}") from error
            if status != 200:
                raise RuntimeError(
                    f"{self.gitea_url} does not list the repositories of {self.username}: "
                    f"HTTP {status} {body[:200].decode(errors='replace')}"
                )
            if not (repositories := read_json(body)):
                break
            listed = [{name: str(one.get(name) or "") for name in names} for one in repositories]
            fresh = [one for one in listed if one not in found]
            if not fresh:
                raise RuntimeError(
                    f"{self.gitea_url} lists nothing new as page {page} of the repositories of "
                    f"{self.username}; the list may be incomplete"
                )
            found += fresh
        return found

    @property
    def _login(self) -> str:
        known = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(known).decode()}"

    def _refuse_unless_ready(self) -> None:
        if not self.is_ready:
            raise RuntimeError("the git server is not ready; call wait_for_ready() first")

    # ------------------------------------------------------------------ clones

    def clone_to_workspace(
        self, repo_name: str, target_dir: str | None = None, commit: str = "main"
    ) -> str:
        """Clone a repository, replacing an earlier clone, and return the path.

        Args:
            repo_name: The name of the repository.
            target_dir: Directory below the workspace; by default the repository's name.
            commit: The commit, branch or tag to check out.

        Raises:
            RuntimeError: The server is not ready, or the repository cannot be cloned or checked
                out. An earlier clone stays as it was.
            ValueError: A name is empty, or leads out of the workspace.
        """
        self._refuse_unless_ready()
        _refuse_option("commit", commit)
        target = self._place(target_dir or repo_name)
        if target == self._root:
            raise ValueError(f"target_dir={target_dir!r} is the workspace itself; name one below")
        url = f"{self.gitea_url}/{quote(self.username)}/{quote(repo_name)}.git"
        fresh = target.with_name(f".{target.name}.clone-{os.getpid()}")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._must(["clone", "--quiet", "--", url, str(fresh)], f"{repo_name} is not cloned")
            self._check_out(fresh, repo_name, commit)
            if target.exists():
                shutil.rmtree(target)
            fresh.rename(target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return str(target)

    def reset_workspace(self, repo_name: str, commit: str = "main") -> bool:
        """Reset a clone to a commit, discarding changes and untracked files; return True.

        The server is contacted only for a commit that the clone does not have.

        Args:
            repo_name: The clone's directory below the workspace.
            commit: The commit, branch or tag to check out.

        Raises:
            RuntimeError: There is no such clone or commit.
            ValueError: A name is empty, or leads out of the workspace.
        """
        _refuse_option("commit", commit)
        clone = self._place(repo_name)
        if not self.workspace_exists(repo_name):
            raise RuntimeError(f"{repo_name} is not in {self.workspace_dir}; clone it first")
        self._must(["reset", "--quiet", "--hard"], f"{repo_name} is not set back", clone)
        self._must(["clean", "--quiet", "-ffdx"], f"{repo_name} is not cleaned", clone)
        self._check_out(clone, repo_name, commit)
        return True

    def _check_out(self, clone: Path, repo_name: str, commit: str) -> None:
        of_server = f"refs/remotes/origin/{commit}"
        if not (self._is_known(commit, clone) or self._is_known(of_server, clone)):
            fetch = ["fetch", "--quiet", "--tags", "origin"]
            self._must(fetch, f"{repo_name} has no {commit}, and is not fetched", clone)
        self._must(["checkout", "--quiet", commit, "--"], f"{repo_name} has no {commit}", clone)
        if self._is_known(of_server, clone):  # a branch, which may have local commits
            self._must(
                ["reset", "--quiet", "--hard", of_server], f"{repo_name} is as it was", clone
            )

    def _is_known(self, commit: str, clone: Path) -> bool:
        return not self._git(["rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}"], clone)[0]

    def execute_git_command(self, command: str, working_dir: str = "") -> tuple[int, str, str]:
        """Run a git command and return exit code, standard output and standard error.

        The exit code is 1 if the directory does not exist or the command cannot be parsed, and 124
        after 300 s.

        Args:
            command: The command without ``git``, such as ``log --oneline -n 3``; no shell is used.
            working_dir: Directory below the workspace; by default the workspace itself.
        """
        try:
            place = self._place(working_dir) if working_dir else self._root
            words = shlex.split(command)
        except ValueError as error:
            return 1, "", str(error)
        if not place.is_dir():
            return 1, "", f"there is no directory {working_dir!r} in {self.workspace_dir}"
        return self._git(words[1:] if words[:1] == ["git"] else words, place)

    def get_current_commit(self, repo_name: str) -> str:
        """Return the full id of a clone's current commit.

        Raises:
            RuntimeError: There is no such clone.
        """
        return self._must(
            ["rev-parse", "--verify", "HEAD"],
            f"the commit of {repo_name} is not known",
            self._place(repo_name),
        ).strip()

    def workspace_exists(self, repo_name: str) -> bool:
        """Return whether there is a clone of this name."""
        return (self._place(repo_name) / ".git").is_dir()

    # ------------------------------------------------------------------ git

    @property
    def _root(self) -> Path:
        return self.workspace_dir.resolve()

    def _place(self, name: str) -> Path:
        found = (self._root / name).resolve()
        if not found.is_relative_to(self._root):
            raise ValueError(f"{name!r} leads out of {self.workspace_dir}")
        return found

    def _must(self, command: list[str], otherwise: str, directory: Path | None = None) -> str:
        code, out, err = self._git(command, directory or self._root)
        if code:
            raise RuntimeError(f"{otherwise}: {err.strip() or f'git exited with {code}'}")
        return out

    def _git(self, command: list[str], directory: Path) -> tuple[int, str, str]:
        if not directory.is_dir():
            return 1, "", f"there is no directory {directory}"
        is_direct = proxy_for(self.gitea_url) is None
        environ = {
            **os.environ,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_COUNT": "3" if is_direct else "2",
            "GIT_CONFIG_KEY_0": f"http.{self.gitea_url}/.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: {self._login}",
            "GIT_CONFIG_KEY_1": "credential.helper",  # ask no helper for a password
            "GIT_CONFIG_VALUE_1": "",
            # libcurl would send even requests to this machine through a proxy.
            "GIT_CONFIG_KEY_2": f"http.{self.gitea_url}/.proxy",
            "GIT_CONFIG_VALUE_2": "",
            # A directory that is no clone must not count as part of a repository above it.
            "GIT_CEILING_DIRECTORIES": str(self._root),
        }
        try:
            done = subprocess.run(  # nosec B603 B607  # without a shell, and git is where PATH says
                ["git", *command],
                cwd=directory,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError:
            return 127, "", "git is not installed"
        except subprocess.TimeoutExpired:
            return TIMED_OUT, "", f"it took longer than {COMMAND_TIMEOUT_S:g} s"
        return done.returncode, done.stdout, done.stderr


def _refuse_option(name: str, value: str) -> None:
    if not value or value.startswith("-"):
        raise ValueError(f"{name}={value!r}; it must name a commit, a branch or a tag")
