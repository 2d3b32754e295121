"""What judges a package, and how it is found.

A grader reads the manifest and the evidence, and never the file that the manifest is from. It
judges; what its failure means is the severity policy's to say. Anyone can add one, by an entry
point of the group ``openenv.validation.graders`` that names a class, or an object:

    [project.entry-points."openenv.validation.graders"]
    title_case = "my_graders:TitleCase"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from openenv.errors import OpenEnvError
from openenv.validation.manifest import AnyManifest
from openenv.validation.providers import RunningSubject
from openenv.validation.report import CheckResult
from openenv.validation.types import Level, ProviderCapability

__all__ = [
    "ENTRY_POINT_GROUP",
    "Check",
    "Evidence",
    "Grader",
    "GraderError",
    "GraderRegistry",
    "RuntimeEvidence",
    "Subject",
    "WireExchange",
]

ENTRY_POINT_GROUP = "openenv.validation.graders"

T = TypeVar("T")


class GraderError(OpenEnvError, ValueError):
    """Something is no grader, or its check has one already."""


class Evidence:
    """Everything that one run has seen, each kind once: what graders read.

    A kind is a class. Whoever collects puts an instance, and graders get it by the class.
    """

    def __init__(self, *items: object) -> None:
        self._items = {type(item): item for item in items}

    def put(self, item: object) -> None:
        """Add what was collected; it takes the place of what was there of its class."""
        self._items[type(item)] = item

    def get(self, kind: type[T]) -> T | None:
        """What was collected of a kind; None where nothing was."""
        found = self._items.get(kind)
        return found if isinstance(found, kind) else None

    def need(self, kind: type[T]) -> T:
        """What was collected of a kind.

        Raises:
            LookupError: Nothing was; a grader that needs it should depend on what collects it.
        """
        found = self.get(kind)
        if found is None:
            raise LookupError(f"no {kind.__name__} was collected")
        return found


@dataclass(frozen=True)
class WireExchange:
    """One request on the wire and its answer, as the texts that they were.

    Attributes:
        operation: ``reset``, ``step`` or ``state``.
        request_json: What was sent.
        response_json: What came.
    """

    operation: str
    request_json: str
    response_json: str


@dataclass(frozen=True)
class RuntimeEvidence:
    """The episode that was played, for graders that were written for the public package.

    Attributes:
        exchanges: In their order.
        observation_schema_json: What the server says of its observations.
        failure_phase: Where it went wrong; None where it did not.
        failure_reason: How.
        reset_observation_schema_json: What it says of a reset's, where that is another.
    """

    exchanges: tuple[WireExchange, ...] = ()
    observation_schema_json: str | None = None
    failure_phase: str | None = None
    failure_reason: str | None = None
    reset_observation_schema_json: str | None = None


@dataclass
class Subject:
    """What a grader judges.

    Attributes:
        root: The package's directory. Reading is all that is done with it.
        manifest: What it declares.
        image_ref: Its image's digest; None where none was built.
        running: It, serving; None at the static level.
        outputs_dir: Where a grader may put files; they are kept beside the report.
        runtime_evidence: The episode that was played, in the public package's form.
        network_evidence_json: What it could reach; None where that was not measured.
        evidence: Everything that was collected.
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
    """Judges one thing.

    Attributes:
        check_id: Names it, as ``group.what``: small letters and underscores.
        level: How deep it looks.
        requires_capabilities: The fields of `CapabilitiesSpec` that a package must declare, for
            this to be asked of it at all.
        requires_provider: What the provider must be capable of; it is skipped where it is not.
        depends_on: Checks that must have passed; it is skipped where one has not.
    """

    check_id: str
    level: Level
    requires_capabilities: frozenset[str]
    requires_provider: frozenset[ProviderCapability]
    depends_on: tuple[str, ...]

    def applies_to(self, manifest: AnyManifest) -> bool:
        """Whether this can be asked of such a package."""
        ...

    def run(self, subject: Subject) -> CheckResult:
        """Judge. It changes nothing; an exception is reported as this check's own error."""
        ...


@dataclass
class Check:
    """A grader that is a function.

    Attributes:
        check_id: See `Grader`; so are `level`, `requires_capabilities`, `requires_provider` and
            `depends_on`.
        judge: What judges.
        applies: Whether it can be asked of a package with this manifest.
        reads_manifest: Without a manifest it is skipped; otherwise `judge` is given None for it.
    """

    check_id: str
    level: Level
    judge: Callable[[Subject], CheckResult]
    depends_on: tuple[str, ...] = ()
    requires_capabilities: frozenset[str] = frozenset()
    requires_provider: frozenset[ProviderCapability] = frozenset()
    applies: Callable[[AnyManifest], bool] = lambda manifest: True
    reads_manifest: bool = True

    def applies_to(self, manifest: AnyManifest) -> bool:
        """Whether this can be asked of such a package."""
        return self.applies(manifest)

    def run(self, subject: Subject) -> CheckResult:
        """Judge."""
        return self.judge(subject)


class GraderRegistry:
    """Graders by their checks."""

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
            GraderError: It is none, or its check has one.
        """
        lacking = [name for name in _PARTS if not hasattr(grader, name)]
        if lacking:
            raise GraderError(f"{grader!r} is no grader: it has no {', '.join(lacking)}")
        if grader.check_id in self._graders:
            raise GraderError(f"the check {grader.check_id!r} has a grader already")
        self._graders[grader.check_id] = grader

    def load_entry_points(self) -> int:
        """Add what installed packages offer; gives how many that are.

        Raises:
            GraderError: One cannot be imported, is no grader, or is of a check that has one; the
                text names the package.
        """
        found = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda one: (one.name, one.value))
        for entry in found:
            grader = _loaded(entry)
            try:
                self.register(grader)
            except GraderError as error:
                raise GraderError(f"the entry point {_named(entry)}: {error}") from error
            self._third_party.add(grader.check_id)
        return len(found)

    @property
    def third_party(self) -> list[Grader]:
        """Those that installed packages offer."""
        return [grader for grader in self if grader.check_id in self._third_party]

    def get(self, check_id: str) -> Grader | None:
        """The grader of a check; None where there is none."""
        return self._graders.get(check_id)

    def select(self, manifest: AnyManifest, max_level: Level) -> list[Grader]:
        """The graders that can be asked of a package, up to a level, in the order they run."""
        chosen = [
            grader for grader in self if grader.level <= max_level and _is_asked(grader, manifest)
        ]
        return in_order(chosen)


_PARTS = (
    "check_id",
    "level",
    "requires_capabilities",
    "requires_provider",
    "depends_on",
    "applies_to",
    "run",
)


def _is_asked(grader: Grader, manifest: AnyManifest) -> bool:
    declared = manifest.capabilities
    has = all(getattr(declared, name, None) for name in grader.requires_capabilities)
    return has and grader.applies_to(manifest)


def in_order(graders: Iterable[Grader]) -> list[Grader]:
    """Graders with those of lower levels first, and each after what it depends on.

    Raises:
        GraderError: They depend on each other in a circle.
    """
    import graphlib

    by_id = {grader.check_id: grader for grader in sorted(graders, key=lambda one: one.level)}
    sorter: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for check_id, grader in by_id.items():
        sorter.add(check_id, *(other for other in grader.depends_on if other in by_id))
    try:
        ranks = {check_id: rank for rank, check_id in enumerate(sorter.static_order())}
    except graphlib.CycleError as error:
        raise GraderError(f"checks depend on each other in a circle: {error.args[1]}") from error
    return sorted(by_id.values(), key=lambda one: (one.level, ranks[one.check_id]))


def _loaded(entry: EntryPoint) -> Any:
    try:
        found = entry.load()
        return found() if isinstance(found, type) else found
    except (Exception, SystemExit) as error:  # whatever a package raises when it is imported
        raise GraderError(
            f"the entry point {_named(entry)} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def _named(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist is not None else "an unknown package"
    return f"{entry.name} = {entry.value} of {package}"
