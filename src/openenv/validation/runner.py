"""The validation run, from a directory to a report.

The package's format selects a parser, which makes the manifest. Then, level by level, collectors
gather evidence once and graders judge the evidence. An exception in a grader becomes an error of
its check, and the run continues. At the end the severity policy decides the verdict.

All code runs on the calling thread; collectors use the client's background event loop for I/O.
"""

from __future__ import annotations

import functools
import importlib
import json
import platform
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from openenv._internal.redaction import redact
from openenv._internal.version import version
from openenv.errors import OpenEnvError
from openenv.validation.checks import Scores, score_results
from openenv.validation.context import RunOptions, Startup, ValidationRun
from openenv.validation.graders import (
    STARTUP,
    Evidence,
    FunctionGrader,
    Grader,
    GraderRegistry,
    RuntimeEvidence,
    Subject,
    sort_graders,
)
from openenv.validation.manifest import (
    AnyManifest,
    DeclarationError,
    NormalizedManifest,
    NormalizedManifestV2,
)
from openenv.validation.parsers import default_parsers
from openenv.validation.policy import (
    PolicyEntry,
    SeverityPolicy,
    SeverityPolicyError,
    add_entries,
    apply_policy,
    load_policy,
)
from openenv.validation.providers import UnmetRequirement, ValidationProvider, choose_provider
from openenv.validation.report import (
    AnyReport,
    CheckResult,
    Judgment,
    ValidationReport,
    ValidationReportV2,
    skip,
)
from openenv.validation.signature import detect_signature
from openenv.validation.static import collect as collect_static
from openenv.validation.static import graders as static_graders
from openenv.validation.static.builds import BuildSettings, ImageBuilds
from openenv.validation.static.declarations import ManifestEvidence
from openenv.validation.targets import source_digest
from openenv.validation.types import CheckStatus, Lane, Level, Severity, SignatureKind

# By level: the module, the function that collects, and the function that returns the graders.
LEVELS = {
    Level.RUNTIME: ("openenv.validation.runtime", "collect_runtime", "runtime_checks"),
    Level.SEMANTIC: ("openenv.validation.semantic", "collect_semantic", "semantic_checks"),
    Level.STATISTICAL: ("openenv.validation.learning", "collect_learning", "learning_checks"),
}

Progress = Callable[[str, int, int, str], None]
"""Called with a check's id, the number of finished checks, the total, and a message or status."""


@dataclass(frozen=True)
class Validation:
    """The result of a run.

    Attributes:
        report: The report.
        policy: The policy that decided the verdict, with entries for third-party checks.
        scores: The scores by property.
        artifacts: The directory of artifacts; None if none was requested.
        provider: The provider that started the package; None if the package was not started.
        seconds: The duration of the run.
    """

    report: AnyReport
    policy: SeverityPolicy
    scores: Scores
    artifacts: Path | None
    provider: str | None
    seconds: float


# ------------------------------------------------------------------ graders and policies


def default_grader_registry(
    policy: SeverityPolicy, max_level: Level = Level.SEMANTIC
) -> GraderRegistry:
    """Return the graders of the checks that a policy knows, and those of installed packages.

    Raises:
        GraderError: A grader of an installed package cannot be used.
    """
    known = {entry.check_id for entry in policy.entries}
    graders: list[Grader] = list(static_graders())
    for level, (module, _, offers) in LEVELS.items():
        if level <= max_level:
            graders += getattr(importlib.import_module(module), offers)()
    registry = GraderRegistry(grader for grader in graders if grader.check_id in known)
    registry.load_entry_points()
    return registry


def default_policy(max_level: Level) -> SeverityPolicy:
    """Return the default policy: `v1` for packages that are only read, else `v3`."""
    return load_policy("v1" if max_level is Level.STATIC else "v3")


# ------------------------------------------------------------------ the run


def run_validation(
    target: Path,
    *,
    max_level: Level = Level.SEMANTIC,
    skip_build: bool = False,
    policy: SeverityPolicy | None = None,
    provider: ValidationProvider | None = None,
    artifacts_dir: Path | None = None,
) -> AnyReport:
    """Validate a package.

    Args:
        target: The package's directory.
        max_level: The deepest level to check.
        skip_build: Build no image; checks that need an image are skipped.
        policy: The severity policy; by default `v1` for the static level and `v3` for others.
        provider: The provider that starts the package; by default a container if there is an
            engine, else a process.
        artifacts_dir: Directory for the evidence; by default no evidence is kept.

    Returns:
        The report, in schema 1 for the static level and in schema 2 for others.

    Raises:
        SignatureError: The directory is not a package, or matches several formats.
        UnsupportedPackageError: The package belongs to a category that cannot be validated here.
        SeverityPolicyError: The policy does not cover this level.
        GraderError: A grader of an installed package cannot be used.
    """
    how: dict[str, Any] = {"policy": policy, "provider": provider, "artifacts_dir": artifacts_dir}
    return validate(target, max_level=max_level, skip_build=skip_build, **how).report


def validate(
    target: Path,
    *,
    max_level: Level = Level.SEMANTIC,
    skip_build: bool = False,
    policy: SeverityPolicy | None = None,
    provider: ValidationProvider | None = None,
    artifacts_dir: Path | None = None,
    options: RunOptions | None = None,
    build: BuildSettings | None = None,
    progress: Progress = lambda check_id, done, total, words: None,
) -> Validation:
    """Validate a package, like `run_validation`, and return all details of the run.

    Args:
        target: The package's directory.
        max_level: The deepest level to check; STATISTICAL trains a small learner in the package.
        skip_build: See `run_validation`.
        policy: See `run_validation`.
        provider: See `run_validation`.
        artifacts_dir: See `run_validation`.
        options: Limits and seeds of the run.
        build: Settings for building images on this machine.
        progress: Function that receives progress; see `Progress`.
    """
    began = time.monotonic()
    chosen = policy or default_policy(max_level)
    _check_policy(chosen, max_level)
    signature = detect_signature(target)
    registry = default_grader_registry(chosen, max_level)
    warn = functools.partial(PolicyEntry, lane=Lane.LOCAL, severity=Severity.WARN)
    others = (warn(check_id=one.check_id, level=one.level) for one in registry.third_party)
    chosen = add_entries(chosen, others)  # third-party checks only warn by default
    digest = source_digest(target)
    if artifacts_dir is not None:
        artifacts_dir.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="openenv-validation-", ignore_cleanup_errors=True)
        if artifacts_dir is None
        else nullcontext(artifacts_dir)
    ) as outputs:
        session = _ValidationSession(
            root=target,
            policy=chosen,
            registry=registry,
            outputs=Path(outputs),
            max_level=max_level,
            progress=progress,
            skip_build=skip_build,
            build=build or BuildSettings(),
        )
        try:
            session.read(signature)
            session.judge_static()
            if max_level > Level.STATIC:
                session.judge_running(provider, options or RunOptions())
        finally:
            if (builds := session.evidence.get(ImageBuilds)) is not None:
                builds.forget()
        report = session.report(signature, digest, target)
        scores = score_results(report.results, chosen)
        seconds = time.monotonic() - began
        if artifacts_dir is not None:
            more = {"scores": scores.as_data(), "seconds": seconds, "skip_build": skip_build}
            _write_evidence(artifacts_dir, session.evidence, **more)
    return Validation(report, chosen, scores, artifacts_dir, session.provider_name, seconds)


def _check_policy(policy: SeverityPolicy, max_level: Level) -> None:
    known = {entry.check_id for entry in policy.entries}
    if max_level > Level.STATIC and STARTUP not in known:
        raise SeverityPolicyError(
            f"policy {policy.policy_version} is for packages that are not run; use v2 or v3, "
            "or only the static level"
        )
    if max_level is Level.STATISTICAL and "learning.curve" not in known:
        raise SeverityPolicyError(
            f"policy {policy.policy_version} does not cover the learner; use v3"
        )


def artifacts_directory(report: Path) -> Path:
    """Return the directory of a report's artifacts, next to the report: ``<name>.artifacts``."""
    return report.with_name(f"{report.stem}.artifacts")


def _write_evidence(directory: Path, evidence: Evidence, **more: Any) -> None:
    """Write ``run.json``, and the measured episode as ``transcript.jsonl``, without secrets."""
    startup, builds = evidence.get(Startup), evidence.get(ImageBuilds)
    facts = {
        "openenv": version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "startup": None if startup is None else asdict(startup),
        "images": [] if builds is None else [f"sha256:{built.id}" for built in builds.built],
        **more,
    }
    texts = {"run.json": json.dumps(facts, indent=2, default=str) + "\n"}
    if (seen := evidence.get(RuntimeEvidence)) is not None:
        lines = [json.dumps(asdict(exchange)) + "\n" for exchange in seen.exchanges]
        texts["transcript.jsonl"] = "".join(lines)
    for name, text in texts.items():
        (directory / name).write_text(redact(text), encoding="utf-8")


@dataclass
class _ValidationSession:
    root: Path
    policy: SeverityPolicy
    registry: GraderRegistry
    outputs: Path
    max_level: Level
    progress: Progress
    skip_build: bool
    build: BuildSettings
    manifest: AnyManifest | None = None
    evidence: Evidence = field(default_factory=Evidence)
    results: list[CheckResult] = field(default_factory=list)
    levels_run: list[Level] = field(default_factory=list)
    provider_name: str | None = None
    total: int = 0

    # ------------------------------------------------------------------ the package

    def read(self, signature: SignatureKind) -> None:
        error = None
        try:
            self.manifest = default_parsers().parser_for(signature).parse(self.root)
        except DeclarationError as found:
            error = found
        bounds, name = self.policy.bounds, self.policy.policy_version
        self.evidence.put(ManifestEvidence(self.manifest, error, bounds, name))
        self.total = len(self._graders(self.max_level))

    def _graders(self, max_level: Level) -> list[Grader]:
        if self.manifest is not None:
            return self.registry.select(self.manifest, max_level)
        return sort_graders(grader for grader in self.registry if grader.level <= max_level)

    def judge_static(self) -> None:
        how, tell = self.build, self._tell
        collect_static(self.root, self.manifest, self.evidence, self.skip_build, how, tell)
        self._judge(Level.STATIC, None, frozenset())
        self.levels_run.append(Level.STATIC)

    # ------------------------------------------------------------------ the package, running

    def judge_running(self, provider: ValidationProvider | None, options: RunOptions) -> None:
        levels = [level for level in LEVELS if level <= self.max_level]
        reason = self._why_not_run()
        if reason is not None or self.manifest is None:
            for level in levels:
                self._judge(level, None, frozenset(), unseen=reason)
            return
        chosen = provider or choose_provider(
            "auto", skip_build=self.skip_build, settings=self.build, tell=self._tell
        )
        self.provider_name = chosen.name
        builds = self.evidence.get(ImageBuilds)
        with ValidationRun(
            self.root, self.manifest, self.outputs, chosen, options, self.evidence, tell=self._tell
        ) as run:
            if builds is not None and chosen.name == "docker":
                run.image_ref = builds.image_ref
            startup = run.start_up()
            for level in levels:
                self._run_level(level, run, startup)

    def _why_not_run(self) -> str | None:
        if self.manifest is None:
            return "unmet dependency: static.manifest (fail)"
        if not isinstance(self.manifest, NormalizedManifestV2):
            if self.manifest.capabilities.verifier.kind == "reward_channel":
                return None
            return "execution: it is no server, and nothing here plays a task of this form"
        if self.manifest.execution.requires_credentials:
            return "credentials: it says that it cannot run without somebody's key"
        return None

    def _run_level(self, level: Level, run: ValidationRun, startup: Startup) -> None:
        module, collects, _ = LEVELS[level]
        unseen: str | None = None
        fault: Exception | None = None
        if startup.is_running and self._can_judge(level):
            try:
                getattr(importlib.import_module(module), collects)(run)
                self.levels_run.append(level)
            except UnmetRequirement as error:
                unseen = f"{error.capability}: {error}"
            except Exception as error:
                fault = error
        self._judge(level, run, run.provider.capabilities, unseen=unseen, fault=fault)

    def _can_judge(self, level: Level) -> bool:
        """Return whether any check of a level can still run, given the results so far.

        Otherwise the level is not collected, which would take minutes.
        """
        failed = {one.check_id for one in self.results if one.status is not CheckStatus.PASS}
        return any(
            grader.level is level and not failed & set(grader.depends_on)
            for grader in self._graders(level)
        )

    # ------------------------------------------------------------------ judging

    def _judge(
        self,
        level: Level,
        run: ValidationRun | None,
        capabilities: frozenset[Any],
        *,
        unseen: str | None = None,
        fault: Exception | None = None,
    ) -> None:
        subject = self._subject(run)
        for grader in self._graders(level):
            if grader.level is not level:
                continue
            self.progress(grader.check_id, len(self.results), self.total, "")
            began = time.perf_counter()
            judged = self._find_unmet(grader, capabilities, unseen) or self._grade(
                grader, subject, fault
            )
            result = judged.result_of(grader.check_id) if isinstance(judged, Judgment) else judged
            if result.duration_s == 0.0:
                took = time.perf_counter() - began
                result = result.model_copy(update={"duration_s": took})
            self.results.append(result)
            self.progress(grader.check_id, len(self.results), self.total, result.status.value)

    def _subject(self, run: ValidationRun | None) -> Subject:
        builds, startup = self.evidence.get(ImageBuilds), self.evidence.get(Startup)
        seen = self.evidence.get(RuntimeEvidence)
        if seen is None and startup is not None and startup.phase is not None:
            seen = RuntimeEvidence(failure_phase=startup.phase, failure_reason=startup.reason)
        return Subject(
            self.root,
            # Graders that need a manifest are skipped before they run.
            self.manifest,  # type: ignore[arg-type]
            run.image_ref if run is not None else (builds.image_ref if builds else None),
            run.running if run and startup and startup.is_running else None,
            self.outputs,
            seen,
            evidence=self.evidence,
        )

    def _find_unmet(
        self, grader: Grader, capabilities: frozenset[Any], unseen: str | None
    ) -> Judgment | None:
        """Return a skip if a requirement of the check is not met, otherwise None."""
        if self.manifest is None and (
            not isinstance(grader, FunctionGrader) or grader.reads_manifest
        ):
            return skip("unmet dependency: static.manifest (fail)")
        if unseen is not None:
            return skip(unseen)
        ended = {result.check_id: result.status for result in self.results}
        for other in grader.depends_on:
            status = ended.get(other)
            if status is not CheckStatus.PASS:
                how = "not run" if status is None else status.value
                return skip(f"unmet dependency: {other} ({how})")
        lacking = sorted(one.value for one in grader.requires_provider - capabilities)
        if lacking:
            who = f"the provider {self.provider_name!r}" if self.provider_name else "no provider"
            return skip(f"{', '.join(lacking)}: {who} lacks it", lacking=lacking)
        return None

    def _grade(
        self, grader: Grader, subject: Subject, fault: Exception | None
    ) -> CheckResult | Judgment:
        if fault is not None:
            return _error(f"nothing could be seen: {_describe_error(fault)}")
        try:
            result = grader.run(subject)
        except (Exception, SystemExit) as error:
            return _error(f"the check itself failed: {_describe_error(error)}")
        if not isinstance(result, CheckResult):
            return _error(f"the check gave no CheckResult, but {type(result).__name__}")
        if result.check_id != grader.check_id:
            return _error(f"the check gave a result of {result.check_id!r}, not its own")
        return result

    def _tell(self, words: str) -> None:
        self.progress("", len(self.results), self.total, words)

    # ------------------------------------------------------------------ the report

    def report(self, signature: SignatureKind, digest: str, target: Path) -> AnyReport:
        common: dict[str, Any] = {
            "target": str(target),
            "source_digest": digest,
            "signature": signature,
            "policy_version": self.policy.policy_version,
            "lane": Lane.LOCAL,
            "levels_run": self.levels_run,
            "results": self.results,
            "verdict": apply_policy(self.results, self.policy, Lane.LOCAL),
        }
        if self.max_level is Level.STATIC and isinstance(self.manifest, NormalizedManifest | None):
            return ValidationReport(report_schema_version="1", manifest=self.manifest, **common)
        return ValidationReportV2(report_schema_version="2", manifest=self.manifest, **common)


def _error(text: str) -> Judgment:
    return Judgment(CheckStatus.ERROR, (text,))


def _describe_error(error: BaseException) -> str:
    words = f"{type(error).__name__}: {error}"
    places = traceback.extract_tb(error.__traceback__)
    if isinstance(error, OpenEnvError) or not places:
        return words
    return f"{words} ({Path(places[-1].filename).name}:{places[-1].lineno})"
