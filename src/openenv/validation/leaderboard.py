"""Validating many environments, and ranking them.

Each is validated in a process of its own: one that hangs or crashes stops no other. Its report is
kept, and taken again as long as its sources, the level, the policy and this package are the same.
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
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from openenv._internal.json import read_json
from openenv._internal.redaction import redact
from openenv._internal.reports.pages import plain
from openenv._internal.version import version
from openenv.validation.checks import Property
from openenv.validation.digest import source_digest
from openenv.validation.graders import ENTRY_POINT_GROUP
from openenv.validation.pages import filled, points
from openenv.validation.policy import SeverityPolicy, load_policy, read_policy
from openenv.validation.report import AnyReport, ReportError, read_report
from openenv.validation.runner import default_policy
from openenv.validation.scores import Scores, score
from openenv.validation.targets import NoPackage, find_package, is_url, packages_in
from openenv.validation.types import Level

__all__ = ["Entry", "Leaderboard", "Settings", "rank", "targets_of"]

TIMEOUT_S = 1800.0
END_S = 10.0
TOLD_S = 1.0
LAST_LINES, LAST_BYTES = 5, 8192
REPORTS = "reports"

# Standard input is the lifeline of a validation: where we are killed, a watcher that is left behind
# in its group ends it, politely first. Otherwise the watcher keeps the group's id from being used
# again until we have ended the group.
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

Finished = Callable[["Entry", int, int], None]


@dataclass(frozen=True)
class Settings:
    """How a leaderboard is made.

    Attributes:
        level: How deep to look.
        policy: The severity policy's version, or its file; None is that of the level.
        skip_build: Build no images.
        provider: What starts the environments: ``auto``, ``docker`` or ``process``.
        resume: Take reports that there are.
        jobs: How many at a time. More than one disturbs what is measured of speed.
        timeout_s: Seconds that one may take.
        base: What images start from; this and the two below as of `openenv build`.
        network: The network of builds.
        ca_file: Certificates that builds trust.
    """

    level: Level = Level.SEMANTIC
    policy: str | None = None
    skip_build: bool = False
    provider: str = "auto"
    resume: bool = False
    jobs: int = 1
    timeout_s: float = TIMEOUT_S
    base: str | None = None
    network: str | None = None
    ca_file: Path | None = None

    @property
    def severity(self) -> SeverityPolicy:
        """The policy that is used.

        Raises:
            PolicyError: There is none.
        """
        if self.policy is None:
            return default_policy(self.level)
        is_file = self.policy.endswith(".json")
        return read_policy(Path(self.policy)) if is_file else load_policy(self.policy)

    @property
    def policy_version(self) -> str:
        """The version of the policy that is used."""
        return self.severity.policy_version


@dataclass(frozen=True)
class Entry:
    """One environment of a leaderboard.

    Attributes:
        target: What was validated.
        name: What it is called.
        total: Its points, from 0 to 100; None where it could not be validated.
        verdict: Of its report, or ``error``.
        properties: Points by property; None where nothing was asked.
        counts: How many checks ended in each way.
        why: Why it could not be validated, or its first failed check.
        is_resumed: Its report was there already.
    """

    target: str
    name: str
    total: float | None
    verdict: str
    properties: dict[str, float | None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    why: str = ""
    is_resumed: bool = False

    def as_data(self) -> dict[str, Any]:
        """The same, as JSON has it."""
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
    """Environments, the best first.

    Attributes:
        entries: Each of them.
        settings: How it was made.
    """

    entries: tuple[Entry, ...]
    settings: Settings

    def as_data(self) -> dict[str, Any]:
        """The same, as JSON has it."""
        ranked = [{"rank": n, **one.as_data()} for n, one in enumerate(self.entries, start=1)]
        return {
            "level": self.settings.level.name.lower(),
            "policy_version": self.settings.policy_version,
            "openenv": version(),
            "entries": ranked,
        }

    def markdown(self) -> str:
        """The same, as a table."""
        return "\n".join(_markdown(self)) + "\n"

    def html(self) -> str:
        """The same, as a page that needs nothing else.

        Raises:
            MissingPackage: The extra ``eval`` is not installed.
        """
        return filled("leaderboard.html", board=self)


def _markdown(board: Leaderboard) -> Iterator[str]:
    names = [one.value for one in Property]
    yield f"| | environment | score | verdict | {' | '.join(names)} | |"
    yield f"| ---: | --- | ---: | --- |{' ---: |' * len(names)} --- |"
    for number, one in enumerate(board.entries, start=1):
        values = " | ".join(points(one.properties.get(name)) for name in names)
        name, why = plain(one.name), plain(one.why)
        yield f"| {number} | {name} | {points(one.total)} | {one.verdict} | {values} | {why} |"


def targets_of(paths: Sequence[str]) -> list[str]:
    """What is to be validated: each target, and of a folder every package in it.

    Raises:
        NoPackage: There is no such target, or a folder holds no package.
    """
    found: list[str] = []
    for path in paths:
        if is_url(path):
            found.append(path)
            continue
        directory = find_package(path)
        packages = packages_in(directory)
        if not packages:
            raise NoPackage(f"{directory} holds no package")
        found += [str(package) for package in packages]
    return list(dict.fromkeys(found))


def rank(
    targets: Sequence[str],
    output: Path,
    settings: Settings | None = None,
    finished: Finished = lambda entry, done, total: None,
) -> Leaderboard:
    """Validate environments, and rank them by their points.

    Args:
        targets: Directories of packages, and addresses of servers.
        output: Where their reports, and ``leaderboard.json`` and ``.md``, are written.
        settings: How.
        finished: Told of each environment that is done, of how many are, and of how many.

    Raises:
        OSError: Something cannot be written.
        PolicyError: There is no such policy.
    """
    how = settings or Settings()
    entries: list[Entry] = []
    with _Work(output / REPORTS, how) as work:
        for entry in work.each(targets):
            entries.append(entry)
            finished(entry, len(entries), len(targets))
    board = Leaderboard(tuple(sorted(entries, key=_order)), how)
    _write(output / "leaderboard.json", json.dumps(board.as_data(), indent=2) + "\n")
    _write(output / "leaderboard.md", board.markdown())
    return board


def _order(entry: Entry) -> tuple[float, str]:
    return -1.0 if entry.total is None else -entry.total - 1e3, entry.name


def _write(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


# ------------------------------------------------------------------ one environment


class _Work:
    """Validates targets, some at a time. Left early, as by Ctrl-C, it ends what runs."""

    def __init__(self, reports: Path, how: Settings) -> None:
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

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._turn:
            self._is_over = True
            running = list(self._running)
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.send_signal(signal.SIGINT)  # all at once: each may take its time
        for process in running:
            _end(process, asks=False)
        self._pool.shutdown()

    def each(self, targets: Sequence[str]) -> Iterator[Entry]:
        """What came of each target, as it is done."""
        for future in as_completed([self._pool.submit(self._entry, one) for one in targets]):
            yield future.result()

    def _entry(self, target: str) -> Entry:
        if is_url(target):
            return _of_server(target)
        report = self._reports / f"{_slug(target)}.json"
        try:
            made_of = _made_of(target, self._how, self._policy)
        except OSError as error:
            return Entry(target, Path(target).name, None, "error", why=str(error))
        if self._how.resume and _is_current(report, made_of):
            return self._of_report(target, read_report(report), is_resumed=True)
        for old in (_stamp(report), report):
            old.unlink(missing_ok=True)
        trouble = self._validate(target, report)
        try:
            found = read_report(report)
        except ReportError as error:
            return Entry(target, Path(target).name, None, "error", why=trouble or str(error))
        _write(_stamp(report), json.dumps(made_of, indent=2) + "\n")
        return self._of_report(target, found)

    def _validate(self, target: str, report: Path) -> str:
        """Validate one package in a process of its own; gives how it ended, and its last words."""
        with self._turn:
            if self._is_over:
                return "it was not begun"
            words = _LastWords()
            try:
                running = subprocess.Popen(  # nosec B603, B607  # ourselves; sh is POSIX's
                    ["sh", "-c", _LAUNCH, "openenv", *_command(target, report, self._how)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=words.descriptor,
                    start_new_session=True,
                )
            finally:
                words.begin()
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
        return ": ".join(part for part in (how, words.told()) if part)

    def _of_report(self, target: str, report: AnyReport, *, is_resumed: bool = False) -> Entry:
        scores: Scores = score(report.results, self._policy)
        failed = [one for one in report.results if one.status.value in ("fail", "error")]
        first = failed[0] if failed else None
        why = "" if first is None else f"{first.check_id}: {''.join(first.evidence[:1])}"
        return Entry(
            target,
            report.manifest.name if report.manifest else Path(target).name,
            scores.total,
            report.verdict.value,
            {one.property.value: one.value for one in scores.properties},
            {
                status: sum(one.status.value == status for one in report.results)
                for status in ("pass", "fail", "skip", "error")
            },
            why,
            is_resumed,
        )


class _LastWords(threading.Thread):
    """Takes in what a process writes to `descriptor`, and keeps the end of it."""

    def __init__(self) -> None:
        super().__init__(name="openenv-leaderboard-words", daemon=True)
        self._read, self.descriptor = os.pipe()
        self._last = b""

    def begin(self) -> None:
        """Listen, once the process has what it writes to."""
        os.close(self.descriptor)
        self.start()

    def run(self) -> None:
        with open(self._read, "rb", buffering=0) as file:
            while chunk := file.read(LAST_BYTES):
                self._last = (self._last + chunk)[-LAST_BYTES:]

    def told(self) -> str:
        """Its last lines, without secrets. Whoever it has left behind is not waited for."""
        self.join(TOLD_S)
        lines = self._last.decode(errors="replace").strip().splitlines()
        return redact("\n".join(lines[-LAST_LINES:]))


def _command(target: str, report: Path, how: Settings) -> list[str]:
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


def _made_of(target: str, how: Settings, policy: SeverityPolicy) -> dict[str, Any]:
    """What a report stands for: the same of all of this, the same report."""
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
    """A name for the files of a target that no other has, and that people can tell it by."""
    path = Path(target).resolve()
    name = re.sub(r"[^\w.-]+", "-", "-".join(path.parts[-2:])).strip("-")
    return f"{name}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def _end(running: subprocess.Popen[bytes], *, asks: bool = True) -> None:
    """End a validation, politely if it runs, and all that it has left behind in its group."""
    if running.poll() is None:
        if asks:  # once only: a second time would interrupt what it does about it
            running.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            running.wait(END_S)
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)


def _of_server(target: str) -> Entry:
    from openenv.validation.url import inspect_server

    report = inspect_server(target)
    failed = [one for one in report.criteria if not one.passed]
    return Entry(
        target,
        target,
        round(100 * (len(report.criteria) - len(failed)) / len(report.criteria), 1),
        "pass" if report.passed else "fail",
        counts={"pass": len(report.criteria) - len(failed), "fail": len(failed)},
        why=failed[0].id if failed else "",
    )
