"""Validation and ranking of many environments.

Each environment is validated in its own process, so that an environment that hangs or crashes does
not stop the others. With ``resume`` a report is reused if the sources, the level, the policy and
other inputs are unchanged (see `_cache_key`).

A thread of the pool waits for each process; `_turn` guards the set of running processes, so that
leaving the run, by Ctrl-C for example, ends all processes and starts no more. Each process leads a
group that has a watcher: if this process is killed, the watcher ends the group (see `_LAUNCH`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from typing_extensions import Self

from openenv._internal.json import read_json
from openenv._internal.redaction import redact
from openenv._internal.replacing import replace_text
from openenv._internal.reports.pages import plain
from openenv._internal.targets import TargetKind, parse_target
from openenv._internal.version import version
from openenv.validation.checks import Property, score_results
from openenv.validation.graders import ENTRY_POINT_GROUP
from openenv.validation.pages import format_score, render_template
from openenv.validation.policy import SeverityPolicy, load_policy, read_policy
from openenv.validation.report import AnyReport, ReportError, read_report
from openenv.validation.runner import default_policy
from openenv.validation.targets import PackageNotFound, find_package, list_packages, source_digest
from openenv.validation.types import Level

TIMEOUT_S = 1800.0
END_S = 10.0
TOLD_S = 1.0
LAST_LINES, LAST_BYTES = 5, 8192
REPORTS = "reports"

# Standard input is a validation's lifeline: if this process is killed, a watcher in the group ends
# the validation, with SIGINT first. While the watcher runs, the group's id cannot be reused.
_LAUNCH = """
validation=$$
exec 3<&0 </dev/null
( (
    exec >/dev/null 2>&1
    read -r _ <&3
    kill -s INT $validation
    sleep 10
    kill -s KILL -- -$validation
) & )
exec 3<&-
exec "$@"
"""

Finished = Callable[["LeaderboardEntry", int, int], None]


@dataclass(frozen=True)
class LeaderboardSettings:
    """Settings of a leaderboard."""

    level: Level = Level.SEMANTIC  # the deepest level to check
    policy: str | None = None  # the severity policy's version or file; None for the level's default
    skip_build: bool = False  # build no images
    # The provider that starts the environments: ``auto``, ``docker`` or ``process``.
    provider: str = "auto"
    resume: bool = False  # reuse existing reports
    # Number of environments to validate at a time. More than one disturbs measurements of speed.
    jobs: int = 1
    timeout_s: float = TIMEOUT_S  # seconds that one environment may take
    base: str | None = None  # the base image; this and the two below as in `openenv build`
    network: str | None = None  # the network of builds
    ca_file: Path | None = None  # certificates that builds trust

    @property
    def severity(self) -> SeverityPolicy:
        """The severity policy.

        Raises:
            SeverityPolicyError: There is no such policy.
        """
        if self.policy is None:
            return default_policy(self.level)
        is_file = self.policy.endswith(".json")
        return read_policy(Path(self.policy)) if is_file else load_policy(self.policy)

    @property
    def policy_version(self) -> str:
        """The version of the severity policy."""
        return self.severity.policy_version


@dataclass(frozen=True)
class LeaderboardEntry:
    """An environment on a leaderboard."""

    target: str
    name: str
    total: float | None  # the score, from 0 to 100; None if the target could not be validated
    verdict: str  # the report's verdict, or ``error``
    # Scores by property; None if the property has no checks in the run.
    properties: dict[str, float | None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # the number of checks by status
    why: str = ""  # why the target could not be validated, or the first failed check
    is_resumed: bool = False  # true if an existing report was reused

    def as_data(self) -> dict[str, Any]:
        """Return the entry as JSON data."""
        return {
            "target": self.target,
            "name": self.name,
            "score": self.total,
            "verdict": self.verdict,
            "properties": self.properties,
            "counts": self.counts,
            "why": self.why,
            "resumed": self.is_resumed,
        }


@dataclass(frozen=True)
class Leaderboard:
    """Environments, best first."""

    entries: tuple[LeaderboardEntry, ...]
    settings: LeaderboardSettings

    def as_data(self) -> dict[str, Any]:
        """Return the leaderboard as JSON data."""
        ranked = [{"rank": n, **one.as_data()} for n, one in enumerate(self.entries, start=1)]
        return {
            "level": self.settings.level.name.lower(),
            "policy_version": self.settings.policy_version,
            "openenv": version(),
            "entries": ranked,
        }

    def markdown(self) -> str:
        """Return the leaderboard as a Markdown table."""
        return "\n".join(_markdown(self)) + "\n"

    def html(self) -> str:
        """Return the leaderboard as a self-contained HTML page.

        Raises:
            MissingPackage: The extra ``eval`` is not installed.
        """
        return render_template("leaderboard.html", board=self)


def _markdown(board: Leaderboard) -> Iterator[str]:
    names = [one.value for one in Property]
    yield f"| | environment | score | verdict | {' | '.join(names)} | |"
    yield f"| ---: | --- | ---: | --- |{' ---: |' * len(names)} --- |"
    for number, one in enumerate(board.entries, start=1):
        values = " | ".join(format_score(one.properties.get(name)) for name in names)
        name, why, total = plain(one.name), plain(one.why), format_score(one.total)
        yield f"| {number} | {name} | {total} | {one.verdict} | {values} | {why} |"


def expand_targets(paths: Sequence[str]) -> list[str]:
    """List the targets to validate, with each folder replaced by its packages.

    Raises:
        PackageNotFound: There is no such target, or a folder holds no package.
    """
    found: list[str] = []
    for path in paths:
        if parse_target(path).kind is TargetKind.SERVER:
            found.append(path)
            continue
        directory = find_package(path)
        packages = list_packages(directory)
        if not packages:
            raise PackageNotFound(f"{directory} holds no package")
        found += [str(package) for package in packages]
    return list(dict.fromkeys(found))


def rank_environments(
    targets: Sequence[str],
    output: Path,
    settings: LeaderboardSettings | None = None,
    finished: Finished = lambda entry, done, total: None,
) -> Leaderboard:
    """Validate packages and servers, rank them by score, and write the tables to a directory.

    `finished` is called after each environment with the entry, the number done and the total.

    Raises:
        OSError: A file cannot be written.
        SeverityPolicyError: There is no such policy.
    """
    how = settings or LeaderboardSettings()
    entries: list[LeaderboardEntry] = []
    with _LeaderboardRun(output / REPORTS, how) as work:
        for entry in work.validate_all(targets):
            entries.append(entry)
            finished(entry, len(entries), len(targets))
    board = Leaderboard(tuple(sorted(entries, key=_order)), how)
    replace_text(output / "leaderboard.json", json.dumps(board.as_data(), indent=2) + "\n")
    replace_text(output / "leaderboard.md", board.markdown())
    return board


def _order(entry: LeaderboardEntry) -> tuple[float, str]:
    return -1.0 if entry.total is None else -entry.total - 1e3, entry.name


# ------------------------------------------------------------------ one environment


class _LeaderboardRun:
    """A pool that validates targets. Leaving the context ends all running validations."""

    def __init__(self, reports: Path, how: LeaderboardSettings) -> None:
        self._reports = reports
        self._how = how
        self._policy = how.severity
        reports.mkdir(parents=True, exist_ok=True)
        self._pool = ThreadPoolExecutor(how.jobs, "openenv-leaderboard")
        self._turn = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._turn:
            self._is_over = True
            running = list(self._running)
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.send_signal(signal.SIGINT)  # to all before waiting for any
        for process in running:
            _end(process, asks=False)
        self._pool.shutdown()

    def validate_all(self, targets: Sequence[str]) -> Iterator[LeaderboardEntry]:
        for future in as_completed([self._pool.submit(self._entry, one) for one in targets]):
            yield future.result()

    def _entry(self, target: str) -> LeaderboardEntry:
        if parse_target(target).kind is TargetKind.SERVER:
            return _inspect_server_entry(target)
        report = self._reports / f"{_slug(target)}.json"
        failed = LeaderboardEntry(target, Path(target).name, None, "error")
        try:
            made_of = _cache_key(target, self._how, self._policy)
        except OSError as error:
            return replace(failed, why=str(error))
        if self._how.resume and _is_current(report, made_of):
            return self._of_report(target, read_report(report), is_resumed=True)
        for old in (_stamp(report), report):
            old.unlink(missing_ok=True)
        trouble = self._validate(target, report)
        try:
            found = read_report(report)
        except ReportError as error:
            return replace(failed, why=trouble or str(error))
        replace_text(_stamp(report), json.dumps(made_of, indent=2) + "\n")
        return self._of_report(target, found)

    def _validate(self, target: str, report: Path) -> str:
        """Validate a package in a separate process; return how it failed and its last output."""
        with self._turn:
            if self._is_over:
                return "it was not begun"
            words = _StderrTail()
            try:
                running = subprocess.Popen(  # nosec B603, B607  # ourselves; sh is POSIX's
                    ["sh", "-c", _LAUNCH, "openenv", *_command(target, report, self._how)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=words.descriptor,
                    start_new_session=True,
                )
            finally:
                words.start_reading()
            self._running.add(running)
        how = ""
        with running:
            try:
                code = running.wait(self._how.timeout_s)
                if code < 0:
                    how = f"it was ended by signal {-code} ({signal.strsignal(-code)})"
            except subprocess.TimeoutExpired:
                how = f"it took longer than {self._how.timeout_s:g} s"
            finally:
                _end(running)
                self._running.discard(running)
        return ": ".join(part for part in (how, words.read_tail()) if part)

    def _of_report(
        self, target: str, report: AnyReport, *, is_resumed: bool = False
    ) -> LeaderboardEntry:
        scores = score_results(report.results, self._policy)
        statuses = [one.status.value for one in report.results]
        faults = (
            f"{one.check_id}: {''.join(one.evidence[:1])}"
            for one in report.results
            if one.status.value in ("fail", "error")
        )
        return LeaderboardEntry(
            target,
            report.manifest.name if report.manifest else Path(target).name,
            scores.total,
            report.verdict.value,
            {one.property.value: one.value for one in scores.properties},
            {status: statuses.count(status) for status in ("pass", "fail", "skip", "error")},
            next(faults, ""),
            is_resumed,
        )


class _StderrTail(threading.Thread):
    """A thread that reads the output of a process from `descriptor` and keeps the last part."""

    def __init__(self) -> None:
        super().__init__(name="openenv-leaderboard-words", daemon=True)
        self._read, self.descriptor = os.pipe()
        self._last = b""

    def start_reading(self) -> None:
        """Start reading; call this after the process has inherited the descriptor."""
        os.close(self.descriptor)
        self.start()

    def run(self) -> None:
        with open(self._read, "rb", buffering=0) as file:
            while chunk := file.read(LAST_BYTES):
                self._last = (self._last + chunk)[-LAST_BYTES:]

    def read_tail(self) -> str:
        """Return the last lines without secrets; wait at most 1 s for the output to end."""
        self.join(TOLD_S)
        lines = self._last.decode(errors="replace").strip().splitlines()
        return redact("\n".join(lines[-LAST_LINES:]))


def _command(target: str, report: Path, how: LeaderboardSettings) -> list[str]:
    command = [sys.executable, "-m", "openenv.cli", "validate", target, "--output", str(report)]
    command += ["--json", "--provider", how.provider]
    if how.level is Level.STATISTICAL:
        command.append("--learn")
    else:
        command += ["--level", how.level.name.lower()]
    for option in ("policy", "base", "network", "ca_file"):
        if (value := getattr(how, option)) is not None:
            command += [f"--{option.replace('_', '-')}", str(value)]
    return [*command, "--skip-build"] if how.skip_build else command


def _cache_key(target: str, how: LeaderboardSettings, policy: SeverityPolicy) -> dict[str, Any]:
    """Return the inputs that determine a report."""
    graders = (f"{one.name} = {one.value}" for one in entry_points(group=ENTRY_POINT_GROUP))
    return {
        "source_digest": source_digest(Path(target)),
        "level": int(how.level),
        "policy": hashlib.sha256(policy.model_dump_json().encode()).hexdigest(),
        "skip_build": how.skip_build,
        "provider": how.provider,
        "base": how.base,
        "network": how.network,
        "ca_file": None if how.ca_file is None else str(how.ca_file),
        "graders": sorted(graders),
        "openenv": version(),
    }


def _stamp(report: Path) -> Path:
    return report.with_suffix(".made-of.json")


def _is_current(report: Path, made_of: dict[str, Any]) -> bool:
    with suppress(OSError, ValueError, ReportError):
        if read_json(_stamp(report).read_text(encoding="utf-8")) == made_of:
            return read_report(report).source_digest == str(made_of["source_digest"])
    return False


def _slug(target: str) -> str:
    """Return a unique and readable file name for a target."""
    path = Path(target).resolve()
    name = re.sub(r"[^\w.-]+", "-", "-".join(path.parts[-2:])).strip("-")
    return f"{name}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def _end(running: subprocess.Popen[bytes], *, asks: bool = True) -> None:
    """End a validation that still runs, with SIGINT first, and kill its process group."""
    if running.poll() is None:
        if asks:  # only once, because a second SIGINT would interrupt the cleanup
            running.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            running.wait(END_S)
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)


def _inspect_server_entry(target: str) -> LeaderboardEntry:
    from openenv.validation.server_criteria import inspect_server

    report = inspect_server(target)
    count, failed = len(report.criteria), [one.id for one in report.criteria if not one.passed]
    return LeaderboardEntry(
        target,
        target,
        round(100 * (count - len(failed)) / count, 1),
        "fail" if failed else "pass",
        counts={"pass": count - len(failed), "fail": len(failed)},
        why=failed[0] if failed else "",
    )
