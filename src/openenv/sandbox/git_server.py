"""`GitServerClient`: repositories of a Gitea server, cloned into a directory and set back quickly.

It speaks to Gitea by its API (https://docs.gitea.com/api, version 1) and to the repositories by
`git`, which has to be installed. Commands run with the rights of this process: those that an agent
thinks up belong in a container, or in `openenv.sandbox.Sandbox`.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import shutil
import subprocess  # nosec B404  # git, without a shell
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from openenv._internal.json import read_json
from openenv._internal.net.http import HTTPAnswer, ask
from openenv._internal.net.proxies import proxy_for

__all__ = ["GitServerClient", "RepoInfo"]

COMMAND_TIMEOUT_S = 300.0
REQUEST_TIMEOUT_S = 10.0
POLL_S = 0.25
PAGE = 50  # repositories in an answer: the most that Gitea gives, unless it is set up otherwise
TIMED_OUT = 124  # as of `timeout`


@dataclass
class RepoInfo:
    """A repository.

    Attributes:
        name: What it is called.
        url: Its page.
        commit: The commit that is meant.
        clone_url: Where it is cloned from.
    """

    name: str
    url: str
    commit: str
    clone_url: str


class GitServerClient:
    """Clones repositories of one user of a Gitea server, and sets their clones back.

        client = GitServerClient("http://gitea:3000", "gitea", "secret")
        if client.wait_for_ready():
            client.clone_to_workspace("my-repo", commit="abc123")
            client.execute_git_command("status", "my-repo")
            client.reset_workspace("my-repo", commit="abc123")

    The password is told to `git` by its environment: it is in no file, in no list of processes, and
    sent to this server alone.

    Args:
        gitea_url: Where the server is.
        username: Whose repositories they are, and who asks for them.
        password: Of that user; or a token.
        workspace_dir: Where clones are; it is made if it is not there.

    Raises:
        ValueError: `gitea_url` is no address.
    """

    def __init__(
        self,
        gitea_url: str,
        username: str,
        password: str,
        workspace_dir: str | os.PathLike[str] = "/workspace",
    ) -> None:
        if not re.match(r"https?://[^/]", gitea_url):
            raise ValueError(f"gitea_url={gitea_url!r}; it begins with http:// or https://")
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
        """Wait until the server answers.

        Args:
            timeout: Seconds that it may take.

        Returns:
            Whether it does.
        """
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            try:
                self.is_ready = self._ask("/", max(0.1, min(left, 5.0)))[0] < 500
            except OSError:
                self.is_ready = False
            if self.is_ready or time.monotonic() + POLL_S >= deadline:
                return self.is_ready
            time.sleep(POLL_S)

    def list_repositories(self) -> list[dict[str, str]]:
        """List the user's repositories.

        Returns:
            `name`, `full_name`, `clone_url` and `description` of each.

        Raises:
            RuntimeError: The server is not ready, refuses, or has a page that it had before.
        """
        self._refuse_unless_ready()
        names = ("name", "full_name", "clone_url", "description")
        found: list[dict[str, str]] = []
        page = 1
        while repositories := self._page_of_repositories(page):
            listed = [{name: str(one.get(name) or "") for name in names} for one in repositories]
            fresh = [one for one in listed if one not in found]
            if not fresh:
                raise RuntimeError(
                    f"{self.gitea_url} lists nothing new as page {page} of the repositories of "
                    f"{self.username}; whether the list is whole is not known"
                )
            found += fresh
            page += 1
        return found

    def _page_of_repositories(self, page: int) -> list[dict[str, Any]]:
        path = f"/api/v1/user/repos?limit={PAGE}&page={page}"
        try:
            status, body = self._ask(path, REQUEST_TIMEOUT_S, {"Authorization": self._login})
        except OSError as error:
            raise RuntimeError(f"{self.gitea_url} does not answer: {error}") from error
        if status != 200:
            raise RuntimeError(
                f"{self.gitea_url} does not list the repositories of {self.username}: "
                f"HTTP {status} {body[:200].decode(errors='replace')}"
            )
        repositories: list[dict[str, Any]] = read_json(body)
        return repositories

    def _ask(
        self, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> HTTPAnswer:
        return ask(f"{self.gitea_url}{path}", headers, timeout_s=timeout_s)

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
        """Clone a repository, in place of what is there.

        Args:
            repo_name: What it is called.
            target_dir: Of the clone, below the workspace; by default the repository's name.
            commit: What is checked out: a commit, a branch or a tag.

        Returns:
            The path of the clone.

        Raises:
            RuntimeError: The server is not ready, or it cannot be cloned or checked out; what was
                there before stays as it was.
            ValueError: A name leads elsewhere, or is none.
        """
        self._refuse_unless_ready()
        _refuse_option("commit", commit)
        target = self._place(target_dir or repo_name)
        if target == self._root:
            raise ValueError(f"target_dir={target_dir!r} is the workspace itself; name one in it")
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
        """Set a clone back: changes and files that are not in the repository are gone.

        What is not there yet is fetched; else nobody asks the server.

        Args:
            repo_name: The clone's directory.
            commit: What is checked out.

        Returns:
            True.

        Raises:
            RuntimeError: There is no such clone, or no such commit.
            ValueError: A name leads elsewhere, or is none.
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
        if self._is_known(of_server, clone):  # a branch, which may have commits of this clone only
            self._must(
                ["reset", "--quiet", "--hard", of_server], f"{repo_name} is as it was", clone
            )

    def _is_known(self, commit: str, clone: Path) -> bool:
        return not self._git(["rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}"], clone)[0]

    def execute_git_command(self, command: str, working_dir: str = "") -> tuple[int, str, str]:
        """Run a command of git.

        Args:
            command: Without ``git``, such as ``log --oneline -n 3``; no shell reads it.
            working_dir: Where, below the workspace.

        Returns:
            Its exit code, standard output and standard error. A directory that is not there, or a
            command that cannot be read, is exit code 1; one that takes more than 300 s is 124.
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
        """The commit that a clone is at, in full.

        Raises:
            RuntimeError: There is no such clone.
        """
        return self._must(
            ["rev-parse", "--verify", "HEAD"],
            f"the commit of {repo_name} is not known",
            self._place(repo_name),
        ).strip()

    def workspace_exists(self, repo_name: str) -> bool:
        """Whether there is a clone of this name."""
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
            "GIT_CONFIG_KEY_1": "credential.helper",  # nobody else is asked for a password
            "GIT_CONFIG_VALUE_1": "",
            # libcurl sends even requests to this machine through a proxy.
            "GIT_CONFIG_KEY_2": f"http.{self.gitea_url}/.proxy",
            "GIT_CONFIG_VALUE_2": "",
            # A directory that is no clone is not taken for a part of one above.
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
