"""What a package means to keep from agents, and where they could get at it all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from openenv.images.context import read_contents
from openenv.images.errors import BuildError
from openenv.validation.collector import fetch
from openenv.validation.evidence import Fetched, string_leaves
from openenv.validation.graders import Evidence
from openenv.validation.manifest import AnyManifest
from openenv.validation.oracle import OracleError, read_episodes
from openenv.validation.run import Run
from openenv.validation.runtime.seen import Surface, TaskSurvey, ToolSurvey

__all__ = ["PRIVILEGED_FIELDS", "Exposure", "expose", "privileged_files"]

SHORTEST_SECRET = 8

PRIVILEGED_FIELDS = frozenset(
    {
        "answer",
        "answers",
        "criteria",
        "expected",
        "expected_output",
        "ground_truth",
        "hidden_tests",
        "oracle",
        "reference_solution",
        "solution",
        "solutions",
    }
)
"""Names of fields by which tasks hold what they are scored by."""


@dataclass(frozen=True)
class Exposure:
    """Where privileged files, and what is in them, can be got at.

    Attributes:
        files: The privileged files, relative to the package.
        in_context: Those of them that go into the context of the image's build.
        no_context: Why the context could not be read.
        served: HTTP routes of the server by which one can be fetched.
        told: Where the server's own words hold the solution: the route, and the words.
    """

    files: tuple[str, ...]
    in_context: tuple[str, ...] = ()
    no_context: str | None = None
    served: tuple[str, ...] = ()
    told: tuple[tuple[str, str], ...] = field(default=())


def privileged_files(manifest: AnyManifest) -> tuple[str, ...]:
    """The files that a manifest declares for who scores: oracle, canaries, a verifier's script."""
    declared = manifest.capabilities
    named = [
        declared.oracle.location if declared.oracle else None,
        declared.canaries,
        declared.verifier.entry,
    ]
    return tuple(dict.fromkeys(name for name in named if name))


def expose(run: Run, evidence: Evidence) -> Exposure:
    """Look for privileged files, and what is in them, where agents could get at them."""
    files = privileged_files(run.manifest)
    in_context, trouble = _in_context(run.root, run.root / run.execution.context, files)
    pages = [fetch(run.running.base_url, "/" + name) for name in files]
    served = tuple(page.path for page in pages if page.status == 200 and page.body)
    return Exposure(files, in_context, trouble, served, tuple(_told(run, evidence)))


def _in_context(
    root: Path, context: Path, files: Sequence[str]
) -> tuple[tuple[str, ...], str | None]:
    try:
        contents = set(read_contents(context).files)
    except BuildError as error:
        return (), str(error)
    shipped = []
    for name in files:
        path = (root / name).resolve()
        if path.is_relative_to(context.resolve()):
            inside = PurePosixPath(path.relative_to(context.resolve()))
            shipped += [name] if str(inside) in contents else []
    return tuple(shipped), None


def _told(run: Run, evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Where what the server says of itself, of its tools and of its tasks holds a solution."""
    tasks = evidence.get(TaskSurvey)
    for split, listed in (tasks.listed if tasks else {}).items():
        for task in listed:
            yield from ((f"a task of {split}", name) for name in _privileged_in(task))
    secrets = _secrets(run)
    for where, words in _words(evidence):
        yield from ((where, secret) for secret in secrets if secret in words)


def _privileged_in(task: Any) -> Iterator[str]:
    if isinstance(task, Mapping):
        for name, value in task.items():
            if name in PRIVILEGED_FIELDS and value not in (None, "", [], {}):
                yield f"its field {name!r}"
            yield from _privileged_in(value)


def _secrets(run: Run) -> list[str]:
    """Texts of a solution that is written down, where they are long enough to be told apart."""
    declared = run.manifest.capabilities.oracle
    if declared is None or not declared.location.endswith(".json"):
        return []
    try:
        episodes = read_episodes(run.root / declared.location)
    except OracleError:
        return []  # the semantic level says so
    found = [text for episode in episodes for text in string_leaves(list(episode.actions or ()))]
    return sorted({text for text in found if len(text) >= SHORTEST_SECRET})


def _words(evidence: Evidence) -> Iterator[tuple[str, str]]:
    surface, tools = evidence.get(Surface), evidence.get(ToolSurvey)
    if surface is not None:
        pages: list[Fetched] = [surface.metadata]
        yield from ((page.path, page.body) for page in pages)
    for tool in tools.tools if tools is not None else ():
        yield f"the tool {tool.get('name')}", str(tool)
    tasks = evidence.get(TaskSurvey)
    for split, listed in (tasks.listed if tasks else {}).items():
        yield f"the tasks of {split}", str(listed)
