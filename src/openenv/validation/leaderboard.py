"""Validating many environments, and ranking them.

Each is validated in a process of its own: one that hangs or crashes stops no other. Its report is
kept, and taken again as long as its sources, the level, the policy and this package are the same.
"""

from __future__ import annotations

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
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from openenv.validation.artifacts import own_version
from openenv.validation.checks import Property
from openenv.validation.digest import source_digest
from openenv.validation.pages import points, rendered
from openenv.validation.policy import load_policy
from openenv.validation.report import AnyReport, ReportError, read_report
from openenv.validation.runner import default_policy
from openenv.validation.scores import Scores, score
from openenv.validation.targets import NoPackage, find_package, is_url, packages_in
from openenv.validation.types import Level

__all__ = ["Entry", "Leaderboard", "Settings", "rank", "targets_of"]

TIMEOUT_S = 1800.0
END_S = 10.0
LAST_LINES = 5
REPORTS = "reports"

Finished = Callable[["Entry", int, int], None]


@dataclass(frozen=True)
class Settings:
    """How a leaderboard is made.

    Attributes:
        level: How deep to look.
        policy: The severity policy's version; None is that of the level.
        skip_build: Build no images.
        provider: What starts the environments: ``auto``, ``docker`` or ``process``.
        resume: Take reports that there are.
        jobs: How many at a time. More than one disturbs what is measured of speed.
        timeout_s: Seconds that one may take.
    """

    level: Level = Level.SEMANTIC
    policy: str | None = None
    skip_build: bool = False
    provider: str = "auto"
    resume: bool = False
    jobs: int = 1
    timeout_s: float = TIMEOUT_S

    @property
    def policy_version(self) -> str:
        """The policy that is used."""
        return self.policy or default_policy(self.level).policy_version


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
            "openenv": own_version(),
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
        return rendered("leaderboard.html", board=self)


def _markdown(board: Leaderboard) -> Iterator[str]:
    names = [one.value for one in Property]
    yield f"| | environment | score | verdict | {' | '.join(names)} | |"
    yield f"| ---: | --- | ---: | --- |{' ---: |' * len(names)} --- |"
    for number, one in enumerate(board.entries, start=1):
        values = " | ".join(points(one.properties.get(name)) for name in names)
        why = " ".join(one.why.split()).replace("|", "\\|")
        yield f"| {number} | {one.name} | {points(one.total)} | {one.verdict} | {values} | {why} |"


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
    """
    how = settings or Settings()
    (output / REPORTS).mkdir(parents=True, exist_ok=True)
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
        self._pool = ThreadPoolExecutor(how.jobs, "openenv-leaderboard")
        self._turn = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
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
            _end(process)
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
            made_of = _made_of(target, self._how)
        except OSError as error:
            return Entry(target, Path(target).name, None, "error", why=str(error))
        if self._how.resume and _is_current(report, made_of):
            return _of_report(target, read_report(report), is_resumed=True)
        report.unlink(missing_ok=True)
        trouble = self._validate(target, report)
        try:
            found = read_report(report)
        except ReportError as error:
            return Entry(target, Path(target).name, None, "error", why=trouble or str(error))
        _write(_stamp(report), json.dumps(made_of, indent=2) + "\n")
        return _of_report(target, found)

    def _validate(self, target: str, report: Path) -> str:
        """Validate one package in a process of its own; gives its last words."""
        with self._turn:
            if self._is_over:
                return "it was not begun"
            running = subprocess.Popen(  # nosec B603  # ourselves
                _command(target, report, self._how),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._running.add(running)
        with running:
            try:
                _, words = running.communicate(timeout=self._how.timeout_s)
            except subprocess.TimeoutExpired:
                return f"it took longer than {self._how.timeout_s:g} s"
            finally:
                _end(running)
                self._running.discard(running)
        return "\n".join(words.strip().splitlines()[-LAST_LINES:])


def _command(target: str, report: Path, how: Settings) -> list[str]:
    command = [sys.executable, "-m", "openenv.cli", "validate", target, "--output", str(report)]
    command += ["--json", "--provider", how.provider]
    if how.level is Level.STATISTICAL:
        command.append("--learn")
    else:
        command += ["--level", how.level.name.lower()]
    if how.policy is not None:
        command += ["--policy", how.policy]
    return [*command, "--skip-build"] if how.skip_build else command


def _made_of(target: str, how: Settings) -> dict[str, Any]:
    """What a report stands for: the same of all of this, the same report."""
    return {
        "source_digest": source_digest(Path(target)),
        "level": int(how.level),
        "policy_version": how.policy_version,
        "skip_build": how.skip_build,
        "provider": how.provider,
        "openenv": own_version(),
    }


def _stamp(report: Path) -> Path:
    return report.with_suffix(".made-of.json")


def _is_current(report: Path, made_of: dict[str, Any]) -> bool:
    with suppress(OSError, ValueError, ReportError):
        if json.loads(_stamp(report).read_text(encoding="utf-8")) == made_of:
            return read_report(report).source_digest == str(made_of["source_digest"])
    return False


def _slug(target: str) -> str:
    path = Path(target).resolve()
    return re.sub(r"[^\w.-]+", "-", "-".join(path.parts[-2:])).strip("-")


def _end(running: subprocess.Popen[str]) -> None:
    """End a validation that is not to go on, politely: it stops what it has started."""
    if running.poll() is None:
        running.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            running.wait(END_S)
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)


def _of_report(target: str, report: AnyReport, *, is_resumed: bool = False) -> Entry:
    scores: Scores = score(report.results, load_policy(report.policy_version))
    failed = [one for one in report.results if one.status.value in ("fail", "error")]
    first = failed[0] if failed else None
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
        "" if first is None else f"{first.check_id}: {first.evidence[0] if first.evidence else ''}",
        is_resumed,
    )


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
