"""A client of the Hugging Face Hub on top of huggingface_hub, with errors that say what to do.

HF_ENDPOINT sets the address; HF_TOKEN or ``hf auth login`` sets the user.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from openenv._internal.packages import needs
from openenv._internal.redaction import register_secret
from openenv._internal.timing import backoff_s
from openenv.hub.errors import (
    AccessError,
    HubError,
    HubUnreachableError,
    QuotaError,
    RepositoryExistsError,
    RepositoryNotFoundError,
)
from openenv.settings import hub_endpoint

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


class SpaceRevision(NamedTuple):
    """A commit of a Space, and the name by which it was requested.

    Attributes:
        sha: The commit.
        name: The requested branch or tag.
        date: The commit's date, as ``2026-01-31``; empty if the Hub does not say.
    """

    sha: str
    name: str
    date: str


class SpaceInfo(NamedTuple):
    """The state of an existing Space.

    Attributes:
        private: Whether the Space is hidden from the public.
        sha: The newest commit; empty if there is none.
    """

    private: bool
    sha: str


class HubCommit(NamedTuple):
    """The outcome of an upload.

    Attributes:
        sha: The commit.
        pull_request: Address of the pull request; None if there is none.
        is_new: Whether the upload changed anything; if not, `sha` is the previous commit.
    """

    sha: str
    pull_request: str | None
    is_new: bool = True


@dataclass(frozen=True)
class SpaceSettings:
    """The configuration of a Space.

    Attributes:
        private: Hide the Space from everyone but the owner or the owner's organization.
        hardware: Hardware such as ``cpu-basic``; None for the current hardware, or the Hub's
            default.
        variables: Public environment variables.
        secrets: Environment variables that only the Space's server can read.
    """

    private: bool = False
    hardware: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


class SpaceStage(NamedTuple):
    """The runtime state of a Space.

    Attributes:
        name: The Hub's name for the state, such as ``BUILDING`` or ``RUNNING``.
        hardware: The hardware; empty if none is assigned.
        sha: The commit that the state belongs to; empty if the Hub does not say.
        error: The reason why the Space does not run; empty if there is none.
    """

    name: str
    hardware: str
    sha: str
    error: str

    @property
    def is_underway(self) -> bool:
        """Return whether the Hub will change the state without further action."""
        return self.name.endswith(("BUILDING", "STARTING"))

    @property
    def runs(self) -> bool:
        """Return whether the Space serves requests, even while a newer commit is being built."""
        return self.name.startswith("RUNNING")


class Hub:
    """A client of the Hub, logged in as a user.

    Args:
        token: Access token; by default HF_TOKEN, or the token of ``hf auth login``.
        on_wait: Called with the seconds before each retry.
        tries: Maximum number of attempts if the Hub is busy.

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

    # -------------------------------------------------------------- user, revisions, Spaces

    def user(self) -> str:
        """Return the name of the token's user.

        Raises:
            AccessError: The token is missing or invalid.
        """
        return str(self._ask("the login", lambda: self._api.whoami())["name"])

    def revision(
        self, space: str, revision: str | None = None, timeout_s: float | None = None
    ) -> SpaceRevision:
        """Resolve a branch, a tag or an abbreviated commit to a full commit.

        Raises:
            RepositoryNotFoundError: The Space or the revision does not exist.
        """
        name = revision or "main"
        found = self._ask(
            f"the revision {name} of {space}",
            lambda: self._api.space_info(space, revision=name, timeout=timeout_s),
        )
        date = found.last_modified
        return SpaceRevision(str(found.sha), name, "" if date is None else f"{date:%Y-%m-%d}")

    def find(self, space: str) -> SpaceInfo | None:
        """Return a Space's state, or None if the Space does not exist."""
        try:
            found = self._ask(space, lambda: self._api.space_info(space))
        except RepositoryNotFoundError:
            return None
        return SpaceInfo(bool(found.private), str(found.sha or ""))

    def download(self, space: str, sha: str, folder: Path) -> None:
        """Download a commit of a Space into an empty folder."""
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

    # -------------------------------------------------------------- creating and changing

    def create(self, space: str, settings: SpaceSettings) -> None:
        """Create a Space that is built from a Dockerfile.

        Raises:
            RepositoryExistsError: The name is taken.
            AccessError: The token may not create Spaces under this owner.
            QuotaError: The account's quota is used up, or the hardware must be paid for.
        """
        self._ask(
            f"making the Space {space}",
            lambda: self._api.create_repo(
                space, repo_type="space", space_sdk="docker", **_space_options(settings)
            ),
        )

    def configure(self, space: str, settings: SpaceSettings) -> None:
        """Set missing or different variables, secrets and hardware of an existing Space."""
        if settings.variables:
            known = self._ask(
                f"the variables of {space}", lambda: self._api.get_space_variables(space)
            )
            for name, value in settings.variables.items():
                if name not in known or known[name].value != value:
                    self._ask(
                        f"the variable {name} of {space}",
                        partial(self._api.add_space_variable, space, name, value),
                    )
        for name, value in settings.secrets.items():
            self._ask(
                f"the secret {name} of {space}",
                partial(self._api.add_space_secret, space, name, value),
            )
        hardware = settings.hardware
        if hardware is not None and self.stage(space).hardware != hardware:
            self._ask(
                f"the hardware {hardware} for {space}",
                lambda: self._api.request_space_hardware(space, hardware),
            )

    def make_dataset(self, dataset: str, *, private: bool) -> str:
        """Create a missing data set, and return its full name.

        Args:
            dataset: ``owner/name``, or a name under the user's own account.
            private: Create the data set as private.
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
    ) -> HubCommit:
        """Upload files as a single commit: all of them, or nothing.

        Large files are uploaded first, by digest, and the Hub skips files that it already has. So
        an interrupted upload resumes on the next call.

        Args:
            repo: The repository, ``owner/name``.
            folder: The directory of the files.
            files: Paths within the folder.
            message: The commit message.
            kind: ``space`` or ``dataset``.
            create_pr: Propose the commit as a pull request.
            delete: Patterns of files to delete from the repository, except uploaded files.
            on_progress: Called with the number of uploaded bytes and the next file.

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
                partial(
                    self._api.preupload_lfs_files,
                    repo,
                    group,
                    repo_type=kind,
                    create_pr=create_pr,
                    free_memory=False,
                ),
            )
            done += sum((folder / one.path_in_repo).stat().st_size for one in group)
        on_progress(done, "the commit")
        found = self._ask(
            what,
            lambda: self._api.create_commit(
                repo, operations, commit_message=message, repo_type=kind, create_pr=create_pr
            ),
        )
        return HubCommit(str(found.oid), found.pr_url)

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

    def duplicate(self, source: str, target: str, settings: SpaceSettings) -> None:
        """Copy a Space and its history to another name.

        Raises:
            RepositoryNotFoundError: The Space does not exist, or this token may not see it.
            RepositoryExistsError: The target's name is taken.
        """
        self._ask(
            f"the fork of {source} to {target}",
            lambda: self._api.duplicate_repo(
                source, target, repo_type="space", **_space_options(settings)
            ),
        )

    # -------------------------------------------------------------- running

    def stage(self, space: str) -> SpaceStage:
        """Return the runtime state of a Space."""
        found = self._ask(f"the state of {space}", lambda: self._api.get_space_runtime(space))
        raw = found.raw
        return SpaceStage(
            str(getattr(found.stage, "value", found.stage)),
            str(found.hardware or found.requested_hardware or ""),
            str(raw.get("sha") or ""),
            str(raw.get("errorMessage") or ""),
        )

    def log(self, space: str, *, build: bool, lines: int = 15) -> list[str]:
        """Return the last lines of a Space's build log or server log; none if access is denied."""
        try:
            text = self._ask(
                f"the log of {space}",
                lambda: "\n".join(self._api.fetch_space_logs(space, build=build)),
            )
        except HubError:
            return []
        return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]

    def page(self, repo: str, kind: str = "space") -> str:
        """Return the web address of a Space or a ``dataset``."""
        return f"{self.endpoint}/{kind}s/{repo}"

    # -------------------------------------------------------------- requests

    def _ask(self, what: str, ask: Callable[[], T]) -> T:
        """Send a request, and retry while the Hub is busy. Errors name `what`."""
        for tries in itertools.count(1):
            try:
                with _quiet():
                    return ask()
            except Exception as error:
                if (wait_s := self._wait_s(error, tries)) is None:
                    if (failure := self._error_of(what, error)) is None:
                        raise
                    raise failure from error
            self._on_wait(wait_s)
            time.sleep(wait_s)
        raise AssertionError("unreachable")

    def _wait_s(self, error: Any, tries: int) -> float | None:
        """Return the seconds until the next attempt; None if there should be none."""
        if not isinstance(error, self._errors.HfHubHTTPError) or tries >= self._tries:
            return None
        told = error.response.headers.get("Retry-After", "")
        wait_s = float(told) if told.isdecimal() else backoff_s(tries, 1.0)
        may_pass = error.response.status_code in PASSING and wait_s <= LONGEST_WAIT_S
        return wait_s if may_pass else None

    def _error_of(self, what: str, error: Exception) -> HubError | None:
        """Convert an error of the library to one of ours; return None for other errors."""
        errors = self._errors
        if isinstance(error, errors.HfHubHTTPError):
            return self._refused(what, error)
        if isinstance(error, errors.LocalTokenNotFoundError):
            return AccessError("nobody is logged in to the Hub", hint=LOG_IN)
        if isinstance(error, errors.HFValidationError):
            return HubError(f"{what}: {error}", hint="it is written owner/name")
        if isinstance(error, ValueError):  # from a README's metadata, or for large files
            text = " ".join(str(error).split())
            kind = QuotaError if _is_of_quota(text) else HubError
            return kind(f"{what}: the Hub refused: {text}")
        unanswered = (errors.OfflineModeIsEnabled, errors.HTTPError, OSError)
        if isinstance(error, (*unanswered, RuntimeError)):  # RuntimeError comes from uploads
            return self._failed(what, error)
        return None

    def _refused(self, what: str, error: Any) -> HubError:
        status = int(error.response.status_code)
        said = " ".join(str(error.server_message or error.response.reason_phrase or "").split())
        said = said[:300]
        if isinstance(error, self._errors.RevisionNotFoundError | self._errors.EntryNotFoundError):
            return RepositoryNotFoundError(f"{what}: there is none", status=status)
        if isinstance(error, self._errors.RepositoryNotFoundError) and self._may_ask():
            return RepositoryNotFoundError(
                f"{what}: it does not exist, or this token may not see it",
                hint="is the name spelt right? If it is private: log in as one who may see it, "
                "by hf auth login",
                status=status,
            )
        if status == 401:
            return AccessError(
                f"{what}: the Hub does not take the token (status 401)", hint=LOG_IN, status=status
            )
        kind: type[HubError] = HubError
        problem, hint = "the Hub refused", None
        if status == 402:
            kind, problem = QuotaError, "it has to be paid for"
            hint = f"choose cpu-basic, or see {BILLING}"
        elif status in (413, 507) or (status in (400, 403) and _is_of_quota(said)):
            kind, problem = QuotaError, "the account's quota does not suffice"
            hint = f"free some of it, or see {BILLING}"
        elif status == 403:
            kind, problem = AccessError, "the token may not do that"
            hint = f"make a token that may write to it: {TOKENS}"
        elif status == 409:
            kind, problem = RepositoryExistsError, "the name is taken"
            hint = "choose another by --repo-id"
        elif status == 429:
            kind, problem = QuotaError, "too many requests"
            hint = "wait a while, and run it again"
        elif status >= 500:
            problem = "the Hub failed"
            hint = "run it again in a while; https://status.huggingface.co says how it is"
        return kind(f"{what}: {problem} (status {status}): {said}", hint=hint, status=status)

    def _may_ask(self) -> bool:
        """Return whether the Hub accepts the token. A hidden Space gives status 401, too."""
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
                return HubUnreachableError(
                    f"{what}: HF_HUB_OFFLINE forbids to ask the Hub", hint="unset HF_HUB_OFFLINE"
                )
            cause = cause.__cause__  # type: ignore[assignment]
        root = error.__cause__ or error
        why = f"{type(root).__name__}: {root}".strip(": ")
        if what.startswith("the upload"):
            return HubUnreachableError(
                f"{what} broke off: {why}",
                hint="run it again: what has arrived is not sent again, and nothing is half there",
            )
        return HubUnreachableError(
            f"{what}: the Hub at {self.endpoint} cannot be reached: {why}",
            hint="is this machine online, and is HF_ENDPOINT right?",
        )


def _is_of_quota(said: str) -> bool:
    return any(word in said.lower() for word in _OF_QUOTA)


def _space_options(settings: SpaceSettings) -> dict[str, Any]:
    return {
        "private": settings.private or None,
        "space_hardware": settings.hardware,
        "space_variables": _pairs(settings.variables),
        "space_secrets": _pairs(settings.secrets),
    }


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]] | None:
    return [{"key": name, "value": value} for name, value in values.items()] or None


def _by_size(additions: Sequence[Any], folder: Path) -> list[list[Any]]:
    """Group uploads: all small files together, each large file alone."""
    groups: list[list[Any]] = [[]]
    for one in additions:
        is_large = (folder / one.path_in_repo).stat().st_size >= LARGE_BYTES
        (groups if is_large else groups[0]).append([one] if is_large else one)
    return [group for group in groups if group]


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the progress bars, warnings and log lines of huggingface_hub."""
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
