"""Talking to the Hub: by huggingface_hub, with errors that say what to do about them.

Where it is, is what HF_ENDPOINT says; who asks is whom HF_TOKEN or ``hf auth login`` says.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from openenv._internal.packages import needs
from openenv._internal.redaction import register_secret
from openenv.hub.errors import (
    AccessError,
    HubError,
    NotThereError,
    QuotaError,
    TakenError,
    UnreachableError,
)
from openenv.settings import hub_endpoint

__all__ = ["Commit", "Found", "Hub", "Progress", "Revision", "Stage"]

T = TypeVar("T")
Progress = Callable[[int, str], None]

TRIES = 4
LONGEST_WAIT_S = 60.0
PASSING = (429, 503)
TOKENS = "https://huggingface.co/settings/tokens"
LOG_IN = f"hf auth login, or set HF_TOKEN to a token that may write: {TOKENS}"
BILLING = "https://huggingface.co/settings/billing"
LARGE_BYTES = 2**20
_OF_QUOTA = ("quota", "storage limit", "exceed", "too many", "limit reached", "out of storage")


class Revision(NamedTuple):
    """A revision of a Space.

    Attributes:
        sha: The commit.
        name: The branch or tag that was asked for.
        date: When it was committed, as ``2026-01-31``; empty where the Hub does not say.
    """

    sha: str
    name: str
    date: str


class Found(NamedTuple):
    """A Space that is there.

    Attributes:
        private: Not everybody sees it.
        sha: Its newest commit; empty where it has none.
    """

    private: bool
    sha: str


class Commit(NamedTuple):
    """What an upload made.

    Attributes:
        sha: The commit.
        pull_request: The address of the pull request; None where there is none.
        is_new: Something differs from what was there; else it is the commit of before.
    """

    sha: str
    pull_request: str | None
    is_new: bool = True


class _Answer(NamedTuple):
    """What was answered, or the seconds until it is asked for again."""

    value: Any
    wait_s: float | None


class Stage(NamedTuple):
    """What a Space is doing.

    Attributes:
        name: Such as ``BUILDING`` or ``RUNNING``.
        hardware: What it runs on; empty while it runs on none.
        sha: The commit that it is of; empty where the Hub does not say.
        error: Why it does not run; empty where it does.
    """

    name: str
    hardware: str
    sha: str
    error: str

    @property
    def is_underway(self) -> bool:
        """It will become something else by itself."""
        return self.name.endswith(("BUILDING", "STARTING"))

    @property
    def runs(self) -> bool:
        """It serves, even if a newer one is being built."""
        return self.name.startswith("RUNNING")


class Hub:
    """The Hub, as one user of it.

    Args:
        token: By default that of HF_TOKEN, or of ``hf auth login``.
        on_wait: Told of the seconds until something is asked for again, when there is a wait.
        tries: How often a Hub that is busy is asked, at most.

    Raises:
        MissingPackage: huggingface_hub is not installed.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        on_wait: Callable[[float], None] = lambda seconds: None,
        tries: int = TRIES,
    ) -> None:
        with needs("the Hub", "pip install 'openenv[hf]'"):
            import huggingface_hub
            from huggingface_hub import errors
        self._library: Any = huggingface_hub
        self._errors: Any = errors
        self.endpoint = hub_endpoint()
        self._api: Any = huggingface_hub.HfApi(endpoint=self.endpoint, token=token)
        self._on_wait = on_wait
        self._tries = tries
        register_secret(token or huggingface_hub.get_token() or "")

    # -------------------------------------------------------------- who and what is there

    def user(self) -> str:
        """Whose the token is.

        Raises:
            AccessError: There is none, or it is wrong.
        """
        return str(self._ask("the login", lambda: self._api.whoami())["name"])

    def revision(
        self, space: str, revision: str | None = None, timeout_s: float | None = None
    ) -> Revision:
        """Find the commit that a branch, a tag or the beginning of a commit's name is now.

        Raises:
            NotThereError: There is no such Space, or it has no such revision.
        """
        name = revision or "main"
        found = self._ask(
            f"the revision {name} of {space}",
            lambda: self._api.space_info(space, revision=name, timeout=timeout_s),
        )
        date = found.last_modified
        return Revision(str(found.sha), name, "" if date is None else f"{date:%Y-%m-%d}")

    def find(self, space: str) -> Found | None:
        """Look whether there is a Space; None where there is none."""
        try:
            found = self._ask(space, lambda: self._api.space_info(space))
        except NotThereError:
            return None
        return Found(bool(found.private), str(found.sha or ""))

    def download(self, space: str, sha: str, folder: Path) -> None:
        """Copy a commit of a Space into a folder that is empty."""
        self._ask(
            f"{space} at {sha}",
            lambda: self._library.snapshot_download(
                space,
                repo_type="space",
                revision=sha,
                local_dir=folder,
                endpoint=self.endpoint,
                token=self._api.token,
            ),
        )

    # -------------------------------------------------------------- making and changing

    def create(
        self,
        space: str,
        *,
        private: bool,
        hardware: str | None,
        variables: Mapping[str, str],
        secrets: Mapping[str, str],
    ) -> None:
        """Make a Space that is built from a Dockerfile.

        Raises:
            TakenError: There is one.
            AccessError: The token may make none there.
            QuotaError: The account has no more, or must pay for the hardware.
        """
        self._ask(
            f"making the Space {space}",
            lambda: self._api.create_repo(
                space,
                repo_type="space",
                space_sdk="docker",
                private=private or None,
                space_hardware=hardware,
                space_variables=_pairs(variables) or None,
                space_secrets=_pairs(secrets) or None,
            ),
        )

    def configure(
        self,
        space: str,
        *,
        hardware: str | None,
        variables: Mapping[str, str],
        secrets: Mapping[str, str],
    ) -> None:
        """Give a Space that is there variables, secrets and hardware; no more than it lacks."""
        if variables:
            known = self._ask(
                f"the variables of {space}", lambda: self._api.get_space_variables(space)
            )
            for name, value in variables.items():
                if name not in known or known[name].value != value:
                    self._set(space, "variable", self._api.add_space_variable, name, value)
        for name, value in secrets.items():
            self._set(space, "secret", self._api.add_space_secret, name, value)
        if hardware is not None and self.stage(space).hardware != hardware:
            self._ask(
                f"the hardware {hardware} for {space}",
                lambda: self._api.request_space_hardware(space, hardware),
            )

    def _set(self, space: str, what: str, set_it: Any, name: str, value: str) -> None:
        self._ask(f"the {what} {name} of {space}", lambda: set_it(space, name, value))

    def make_dataset(self, dataset: str, *, private: bool) -> str:
        """Make a data set, if there is none; gives its name with its owner.

        Args:
            dataset: ``owner/name``, or a name of the user's own.
            private: Have it private, if it is made.
        """
        made = self._ask(
            f"making the data set {dataset}",
            lambda: self._api.create_repo(
                dataset, repo_type="dataset", private=private, exist_ok=True
            ),
        )
        return str(made.repo_id)

    def upload(
        self,
        repo: str,
        folder: Path,
        files: Sequence[str],
        *,
        message: str,
        kind: str = "space",
        create_pr: bool = False,
        delete: Sequence[str] = (),
        on_progress: Progress = lambda done, what: None,
    ) -> Commit:
        """Upload files as one commit: all of them are there afterwards, or none.

        Large files go first, each by its digest, and what the Hub has of them is not sent again;
        so an upload that broke off goes on where it was when it is called once more.

        Args:
            repo: To which repository, ``owner/name``.
            folder: Where the files are.
            files: Their paths in it.
            message: Of the commit.
            kind: ``space`` or ``dataset``.
            create_pr: Propose the commit instead, as a pull request.
            delete: Patterns of files that it has and shall no longer have; what is uploaded
                stays.
            on_progress: Told of the bytes that are there, and of the file that comes next.

        Raises:
            HubError: See its subclasses.
        """
        made = self._library.CommitOperationAdd
        additions = [made(path_in_repo=one, path_or_fileobj=folder / one) for one in files]
        gone = self._to_delete(repo, kind, delete, files)
        operations = [*map(self._library.CommitOperationDelete, gone), *additions]
        what = f"the upload to {repo}"
        done = 0
        for group in _by_size(additions, folder):
            on_progress(done, group[0].path_in_repo)
            self._ask(
                what,
                lambda group=group: self._api.preupload_lfs_files(  # type: ignore[misc]
                    repo, group, repo_type=kind, create_pr=create_pr, free_memory=False
                ),
            )
            done += sum((folder / one.path_in_repo).stat().st_size for one in group)
        on_progress(done, "the commit")
        found = self._ask(
            what,
            lambda: self._api.create_commit(
                repo,
                operations,
                commit_message=message,
                repo_type=kind,
                create_pr=create_pr,
            ),
        )
        return Commit(str(found.oid), found.pr_url)

    def _to_delete(
        self, repo: str, kind: str, patterns: Sequence[str], kept: Sequence[str]
    ) -> list[str]:
        if not patterns:
            return []
        there = self._ask(
            f"the files of {repo}", lambda: self._api.list_repo_files(repo, repo_type=kind)
        )
        return [
            path
            for path in there
            if path not in {*kept, ".gitattributes"}
            and any(fnmatchcase(path, pattern) for pattern in patterns)
        ]

    def duplicate(
        self,
        source: str,
        target: str,
        *,
        private: bool,
        hardware: str,
        variables: Mapping[str, str],
        secrets: Mapping[str, str],
    ) -> None:
        """Copy a Space, with its history, to another name.

        Raises:
            NotThereError: There is no such Space, or this token may not see it.
            TakenError: There is a Space of the other name.
        """
        self._ask(
            f"the fork of {source} to {target}",
            lambda: self._api.duplicate_repo(
                source,
                target,
                repo_type="space",
                private=private or None,
                space_hardware=hardware,
                space_variables=_pairs(variables) or None,
                space_secrets=_pairs(secrets) or None,
            ),
        )

    # -------------------------------------------------------------- running

    def stage(self, space: str) -> Stage:
        """What a Space is doing."""
        found = self._ask(f"the state of {space}", lambda: self._api.get_space_runtime(space))
        raw = found.raw
        return Stage(
            str(getattr(found.stage, "value", found.stage)),
            str(found.hardware or found.requested_hardware or ""),
            str(raw.get("sha") or ""),
            str(raw.get("errorMessage") or ""),
        )

    def log(self, space: str, *, build: bool, lines: int = 15) -> list[str]:
        """The last lines that a Space's build, or its server, has written; none if it is denied."""
        try:
            text = self._ask(
                f"the log of {space}",
                lambda: "\n".join(self._api.fetch_space_logs(space, build=build)),
            )
        except HubError:
            return []
        return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]

    def page(self, repo: str, kind: str = "space") -> str:
        """Where people look at a Space, or a ``dataset``."""
        return f"{self.endpoint}/{kind}s/{repo}"

    # -------------------------------------------------------------- asking

    def _ask(self, what: str, ask: Callable[[], T]) -> T:
        """Ask, and ask again where the Hub says so; what goes wrong is said of `what`."""
        tries = 1
        while (wait_s := (answer := self._asked(what, ask, tries)).wait_s) is not None:
            self._on_wait(wait_s)
            time.sleep(wait_s)
            tries += 1
        return answer.value  # type: ignore[no-any-return]

    def _asked(self, what: str, ask: Callable[[], T], tries: int) -> _Answer:
        try:
            with _quiet():
                return _Answer(ask(), None)
        except self._errors.HfHubHTTPError as error:
            wait_s = _wait_s(error.response, tries)
            if tries < self._tries and error.response.status_code in PASSING and wait_s is not None:
                return _Answer(None, wait_s)
            raise self._refused(what, error) from error
        except self._errors.LocalTokenNotFoundError as error:
            raise AccessError("nobody is logged in to the Hub", hint=LOG_IN) from error
        except self._errors.HFValidationError as error:
            raise HubError(f"{what}: {error}", hint="it is written owner/name") from error
        except ValueError as error:  # of a README's metadata, and of large files
            text = " ".join(str(error).split())
            kind = QuotaError if _is_of_quota(text) else HubError
            raise kind(f"{what}: the Hub refused: {text}") from error
        except (
            self._errors.OfflineModeIsEnabled,
            self._errors.HTTPError,  # of its client: no answer
            OSError,
            RuntimeError,  # of an upload
        ) as error:
            raise self._failed(what, error) from error

    def _refused(self, what: str, error: Any) -> HubError:
        status = int(error.response.status_code)
        said = _said(error)
        if isinstance(error, self._errors.RevisionNotFoundError | self._errors.EntryNotFoundError):
            return NotThereError(f"{what}: there is none", status=status)
        if isinstance(error, self._errors.RepositoryNotFoundError) and self._may_ask():
            return NotThereError(
                f"{what}: it is not there, or this token may not see it",
                hint="is the name spelt right? If it is private: log in as one who may see it, "
                "by hf auth login",
                status=status,
            )
        if status == 401:
            return AccessError(
                f"{what}: the Hub does not take the token (status 401)", hint=LOG_IN, status=status
            )
        if status == 402:
            return QuotaError(
                f"{what}: it has to be paid for (status 402): {said}",
                hint=f"choose cpu-basic, or see {BILLING}",
                status=status,
            )
        if status in (413, 507) or (status in (400, 403) and _is_of_quota(said)):
            return QuotaError(
                f"{what}: the account's quota does not suffice (status {status}): {said}",
                hint=f"free some of it, or see {BILLING}",
                status=status,
            )
        if status == 403:
            return AccessError(
                f"{what}: the token may not do that (status 403): {said}",
                hint=f"make a token that may write to it: {TOKENS}",
                status=status,
            )
        if status == 409:
            return TakenError(
                f"{what}: the name is taken (status 409): {said}",
                hint="choose another by --repo-id",
                status=status,
            )
        if status == 429:
            return QuotaError(
                f"{what}: too many requests (status 429): {said}",
                hint="wait a while, and run it again",
                status=status,
            )
        if status >= 500:
            return HubError(
                f"{what}: the Hub failed (status {status}): {said}",
                hint="run it again in a while; https://status.huggingface.co says how it is",
                status=status,
            )
        return HubError(f"{what}: the Hub refused (status {status}): {said}", status=status)

    def _may_ask(self) -> bool:
        """Whether the Hub knows the token, if there is one: it answers 401 for both."""
        if self._library.get_token() is None and not self._api.token:
            return True
        try:
            self._api.whoami()
        except Exception:
            return False
        return True

    def _failed(self, what: str, error: BaseException) -> HubError:
        cause = error
        while cause is not None:
            if isinstance(cause, self._errors.HfHubHTTPError):
                return self._refused(what, cause)
            if isinstance(cause, self._errors.OfflineModeIsEnabled):
                return UnreachableError(
                    f"{what}: HF_HUB_OFFLINE forbids to ask the Hub", hint="unset HF_HUB_OFFLINE"
                )
            cause = cause.__cause__  # type: ignore[assignment]
        root = error.__cause__ or error
        why = f"{type(root).__name__}: {root}".strip(": ")
        if what.startswith("the upload"):
            return UnreachableError(
                f"{what} broke off: {why}",
                hint="run it again: what has arrived is not sent again, and nothing is half there",
            )
        return UnreachableError(
            f"{what}: the Hub at {self.endpoint} cannot be reached: {why}",
            hint="is this machine online, and is HF_ENDPOINT right?",
        )


def _said(error: Any) -> str:
    """What the Hub says itself, in one line."""
    text = str(error.server_message or error.response.reason_phrase or "")
    return " ".join(text.split())[:300]


def _is_of_quota(said: str) -> bool:
    return any(word in said.lower() for word in _OF_QUOTA)


def _wait_s(response: Any, tries: int) -> float | None:
    """How long the Hub wants to be left alone; None where that is too long."""
    told = response.headers.get("Retry-After", "")
    wait_s = float(told) if told.isdecimal() else 2.0 ** (tries - 1)
    return wait_s if wait_s <= LONGEST_WAIT_S else None


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": name, "value": value} for name, value in values.items()]


def _by_size(additions: Sequence[Any], folder: Path) -> list[list[Any]]:
    """What is small at once, and each of the large ones alone."""
    small: list[Any] = []
    large = []
    for one in additions:
        is_large = (folder / one.path_in_repo).stat().st_size >= LARGE_BYTES
        (large.append([one]) if is_large else small.append(one))
    return [*([small] if small else []), *large]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep huggingface_hub from drawing bars, warning and logging of its own: we say it."""
    from huggingface_hub.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
        logging,
    )

    had_bars, verbosity = not are_progress_bars_disabled(), logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        disable_progress_bars()
        logging.set_verbosity_error()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            if had_bars:
                enable_progress_bars()
