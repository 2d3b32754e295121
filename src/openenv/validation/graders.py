"""Graders, their evidence, and the registry of graders.

A grader reads the manifest and the evidence, never the package's manifest file. A grader only
judges; the severity policy decides what a failure means. Any package can add a grader with an entry
point in the group ``openenv.validation.graders`` that names a class or an object:

    [project.entry-points."openenv.validation.graders"]
    title_case = "my_graders:TitleCase"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, TypeVar, get_type_hints, runtime_checkable

from openenv.errors import OpenEnvError
from openenv.validation.manifest import AnyManifest
from openenv.validation.providers import RunningSubject
from openenv.validation.report import CheckResult, Judgment, skip
from openenv.validation.types import Level, ProviderCapability

ENTRY_POINT_GROUP = "openenv.validation.graders"
STARTUP, DETERMINISM = "runtime.startup", "runtime.episode_determinism"

_LEVELS = {
    "static": Level.STATIC,
    "runtime": Level.RUNTIME,
    "semantic": Level.SEMANTIC,
    "learning": Level.STATISTICAL,
}

T = TypeVar("T")


class GraderError(OpenEnvError, ValueError):
    """An object that is not a grader, a second grader of a check, or circular dependencies."""


class Evidence:
    """The evidence of a run, keyed by class.

    Collectors put one instance of each class; graders get the instance by class.

    Attributes:
        missing: For each missing class, the reason.
    """

    def __init__(self, *items: object) -> None:
        self._items = {type(item): item for item in items}
        self.missing: dict[type, str] = {}

    def put(self, item: object) -> None:
        """Add an item, replacing an earlier item of the same class."""
        self._items[type(item)] = item

    def get(self, kind: type[T]) -> T | None:
        """Return the item of a class, or None."""
        found = self._items.get(kind)
        return found if isinstance(found, kind) else None

    def need(self, kind: type[T]) -> T:
        """Return the item of a class.

        Raises:
            LookupError: There is no item; the grader should depend on the check that collects it.
        """
        found = self.get(kind)
        if found is None:
            raise LookupError(f"no {kind.__name__} was collected")
        return found

    def note_missing(self, reason: object, *kinds: type) -> None:
        """Record why kinds of evidence are missing, unless a reason was recorded before."""
        for kind in kinds:
            self.missing.setdefault(kind, str(reason))

    @contextmanager
    def note_failure(self, kind: type) -> Iterator[None]:
        """Catch an `OpenEnvError` and record it as the reason why evidence is missing."""
        try:
            yield
        except OpenEnvError as error:
            self.note_missing(error, kind)


@dataclass(frozen=True)
class WireExchange:
    """A request on the wire and the answer, as text.

    Attributes:
        operation: ``reset``, ``step`` or ``state``.
        request_json: The request.
        response_json: The response.
    """

    operation: str
    request_json: str
    response_json: str


@dataclass(frozen=True)
class RuntimeEvidence:
    """The measured episode, for graders written for the public package.

    Attributes:
        exchanges: The exchanges, in order.
        observation_schema_json: The server's schema of observations.
        failure_phase: The phase that failed; None if no phase failed.
        failure_reason: Why the phase failed.
        reset_observation_schema_json: The server's schema of a reset's observation, if it differs.
    """

    exchanges: tuple[WireExchange, ...] = ()
    observation_schema_json: str | None = None
    failure_phase: str | None = None
    failure_reason: str | None = None
    reset_observation_schema_json: str | None = None


@dataclass
class Subject:
    """The package that a grader judges.

    Attributes:
        root: The package's directory; graders only read it.
        manifest: The package's declarations.
        image_ref: The image's digest; None if no image was built.
        running: The running package; None at the static level.
        outputs_dir: A directory for a grader's files, kept next to the report.
        runtime_evidence: The measured episode, in the public package's form.
        network_evidence_json: The reachable hosts; None if not measured.
        evidence: The collected evidence.
    """

    root: Path
    manifest: AnyManifest
    image_ref: str | None
    running: RunningSubject | None
    outputs_dir: Path
    runtime_evidence: RuntimeEvidence | None = None
    network_evidence_json: str | None = None
    evidence: Evidence = field(default_factory=Evidence)


@runtime_checkable
class Grader(Protocol):
    """A grader of a check.

    Attributes:
        check_id: The check's id, as ``group.what``, in lowercase letters and underscores.
        level: The check's level.
        requires_capabilities: Fields of `CapabilitiesSpec` that a package must declare for the
            check to apply.
        requires_provider: Capabilities that the provider needs; without them the check is skipped.
        depends_on: Checks that must have passed; otherwise the check is skipped.
    """

    check_id: str
    level: Level
    requires_capabilities: frozenset[str]
    requires_provider: frozenset[ProviderCapability]
    depends_on: tuple[str, ...]

    def applies_to(self, manifest: AnyManifest) -> bool:
        """Return whether the check applies to a package."""
        ...

    def run(self, subject: Subject) -> CheckResult:
        """Judge a package without changing it. An exception makes the check's status ``error``."""
        ...


@dataclass
class FunctionGrader:
    """A grader made from a function."""

    # `Grader` describes the fields without a comment.
    check_id: str
    level: Level
    judge: Callable[[Subject], Judgment]
    depends_on: tuple[str, ...] = ()
    requires_capabilities: frozenset[str] = frozenset()
    requires_provider: frozenset[ProviderCapability] = frozenset()
    # Function that returns whether the check applies to a manifest.
    applies: Callable[[AnyManifest], bool] = lambda manifest: True
    # If true, the check is skipped without a manifest; otherwise `judge` may receive None.
    reads_manifest: bool = True

    def applies_to(self, manifest: AnyManifest) -> bool:
        """Return whether the check applies to a package."""
        return self.applies(manifest)

    def run(self, subject: Subject) -> CheckResult:
        """Judge a package."""
        return self.judge(subject).result_of(self.check_id)


def make_grader(
    check_id: str,
    judge: Callable[..., Judgment],
    *,
    depends_on: tuple[str, ...] = (STARTUP,),
    requires_provider: frozenset[ProviderCapability] = frozenset(),
    applies: Callable[[AnyManifest], bool] = lambda manifest: True,
) -> FunctionGrader:
    """Make a grader from a judge, a function of the manifest and of kinds of evidence.

    The annotations of the parameters name the kinds. If a kind is missing, the check is skipped
    with the reason.
    """
    kinds: list[type] = list(get_type_hints(judge).values())[1:-1]

    def judge_subject(subject: Subject) -> Judgment:
        found: list[Any] = []
        for kind in kinds:
            if (piece := subject.evidence.get(kind)) is None:
                reason = subject.evidence.missing.get(kind)
                return skip(reason or f"{kind.__name__} was not collected")
            found.append(piece)
        return judge(subject.manifest, *found)

    return FunctionGrader(
        check_id,
        _LEVELS[check_id.partition(".")[0]],
        judge_subject,
        depends_on,
        requires_provider=requires_provider,
        applies=applies,
    )


class GraderRegistry:
    """Graders by check."""

    def __init__(self, graders: Iterable[Grader] = ()) -> None:
        self._graders: dict[str, Grader] = {}
        self._third_party: set[str] = set()
        for grader in graders:
            self.register(grader)

    def __iter__(self) -> Iterator[Grader]:
        return iter(self._graders.values())

    def register(self, grader: Grader) -> None:
        """Add a grader.

        Raises:
            GraderError: The object is not a grader, or its check already has a grader.
        """
        parts = (*Grader.__annotations__, "applies_to", "run")
        lacking = [name for name in parts if not hasattr(grader, name)]
        if lacking:
            raise GraderError(f"{grader!r} is not a grader: missing {', '.join(lacking)}")
        if grader.check_id in self._graders:
            raise GraderError(f"the check {grader.check_id!r} already has a grader")
        self._graders[grader.check_id] = grader

    def load_entry_points(self) -> int:
        """Add the graders of installed packages and return the number added.

        Raises:
            GraderError: An entry point cannot be imported or is not a grader, or its check already
                has a grader. The message names the package.
        """
        found = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda one: (one.name, one.value))
        for entry in found:
            package = entry.dist.name if entry.dist is not None else "an unknown package"
            what = f"the entry point {entry.name} = {entry.value} of {package}"
            try:
                loaded = entry.load()
                grader = loaded() if isinstance(loaded, type) else loaded
            except (Exception, SystemExit) as error:  # importing a package may raise anything
                why = f"{type(error).__name__}: {error}"
                raise GraderError(f"{what} cannot be loaded: {why}") from error
            try:
                self.register(grader)
            except GraderError as error:
                raise GraderError(f"{what}: {error}") from error
            self._third_party.add(grader.check_id)
        return len(found)

    @property
    def third_party(self) -> list[Grader]:
        """The graders of installed packages."""
        return [grader for grader in self if grader.check_id in self._third_party]

    def get(self, check_id: str) -> Grader | None:
        """Return the grader of a check, or None."""
        return self._graders.get(check_id)

    def select(self, manifest: AnyManifest, max_level: Level) -> list[Grader]:
        """Return the graders that apply to a package up to a level, in order of execution."""
        declared = manifest.capabilities
        return sort_graders(
            grader
            for grader in self
            if grader.level <= max_level
            and all(getattr(declared, name, None) for name in grader.requires_capabilities)
            and grader.applies_to(manifest)
        )


def sort_graders(graders: Iterable[Grader]) -> list[Grader]:
    """Sort graders by level, and within a level after the checks that they depend on.

    Raises:
        GraderError: The dependencies are circular.
    """
    by_id = {grader.check_id: grader for grader in sorted(graders, key=lambda one: one.level)}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for check_id, grader in by_id.items():
        sorter.add(check_id, *(other for other in grader.depends_on if other in by_id))
    try:
        ranks = {check_id: rank for rank, check_id in enumerate(sorter.static_order())}
    except CycleError as error:
        raise GraderError(f"checks depend on each other circularly: {error.args[1]}") from error
    return sorted(by_id.values(), key=lambda one: (one.level, ranks[one.check_id]))
