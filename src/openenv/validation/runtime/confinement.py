"""Probes of the isolation of the machine from a subject, and of privileged files from agents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from openenv._internal.json import read_json
from openenv.errors import OpenEnvError
from openenv.images.context import read_build_context
from openenv.images.errors import BuildError
from openenv.validation.context import ValidationRun
from openenv.validation.evidence import string_leaves
from openenv.validation.graders import Evidence
from openenv.validation.manifest import AnyManifest, NetworkPolicy
from openenv.validation.oracle import OracleError, read_episodes
from openenv.validation.providers import RunningSubject
from openenv.validation.runtime.evidence import Confinement, ServerSurface, TaskSurvey, ToolSurvey
from openenv.validation.wire import fetch_page

LOOK_S = 40.0
CONNECT_S = 2.0
# Addresses that accept connections from almost anywhere; nothing is sent to them.
PUBLIC_PLACES = [["1.1.1.1", 443], ["8.8.8.8", 53]]

PROGRAM = Path(__file__).parents[1] / "programs" / "confinement_probe.py"


def probe_confinement(
    subject: RunningSubject, inspected: Mapping[str, Any], network: NetworkPolicy
) -> Confinement:
    """Run the probe inside a subject and return the findings."""
    hosts = [[host, 443] for host in network.allowed_hosts if not set(host) & set("*/")]
    program = PROGRAM.read_text(encoding="utf-8")
    told = json.dumps([CONNECT_S, PUBLIC_PLACES, hosts])
    for python in ("python3", "python"):
        try:
            done = subject.exec([python, "-c", program, told], LOOK_S)
        except OpenEnvError as error:
            return Confinement(inspected, trouble=f"the probe could not be run inside: {error}")
        if done.exit_code == 0:
            return Confinement(inspected, read_json(done.stdout))
    return Confinement(inspected, trouble=f"the probe failed inside: {done.stderr:.300}")


SHORTEST_SECRET = 8

# Names of task fields that usually hold the criteria for scoring.
PRIVILEGED_FIELDS = {
    *("answer", "answers", "criteria", "expected", "expected_output", "ground_truth"),
    *("hidden_tests", "oracle", "reference_solution", "solution", "solutions"),
}


@dataclass(frozen=True)
class Exposure:
    """The places where agents could find privileged files or their contents."""

    files: tuple[str, ...]  # the privileged files, relative to the package
    in_context: tuple[str, ...] = ()  # privileged files that are in the image's build context
    no_context: str | None = None  # why the context could not be read
    served: tuple[str, ...] = ()  # HTTP routes of the server that return a privileged file
    # Texts of the server that reveal the solution: the place, and the revealed text or field.
    told: tuple[tuple[str, str], ...] = field(default=())


def privileged_files(manifest: AnyManifest) -> tuple[str, ...]:
    """Return the files for scoring that a manifest declares: oracle, canaries and verifier."""
    declared = manifest.capabilities
    oracle = declared.oracle.location if declared.oracle else None
    named = (oracle, declared.canaries, declared.verifier.entry)
    return tuple(dict.fromkeys(name for name in named if name))


def find_exposure(run: ValidationRun, evidence: Evidence) -> Exposure:
    """Search the places within an agent's reach for privileged files and solutions."""
    files = privileged_files(run.manifest)
    in_context, trouble = _in_context(run.root, run.root / run.execution.context, files)
    pages = [fetch_page(run.running.base_url, "/" + name) for name in files]
    served = tuple(page.path for page in pages if page.status == 200 and page.body)
    return Exposure(files, in_context, trouble, served, tuple(_find_leaks(run, evidence)))


def _in_context(
    root: Path, context: Path, files: Sequence[str]
) -> tuple[tuple[str, ...], str | None]:
    try:
        contents = set(read_build_context(context).files)
    except BuildError as error:
        return (), str(error)
    shipped = []
    for name in files:
        path = (root / name).resolve()
        if path.is_relative_to(context.resolve()):
            inside = PurePosixPath(path.relative_to(context.resolve()))
            shipped += [name] if str(inside) in contents else []
    return tuple(shipped), None


def _find_leaks(run: ValidationRun, evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield the places where the server's descriptions, tools or tasks reveal a solution."""
    tasks = evidence.get(TaskSurvey)
    for split, listed in (tasks.listed if tasks else {}).items():
        for task in listed:
            yield from ((f"a task of {split}", name) for name in _privileged_in(task))
    secrets = _read_secrets(run)
    for where, words in _list_public_texts(evidence):
        yield from ((where, secret) for secret in secrets if secret in words)


def _privileged_in(task: Any) -> Iterator[str]:
    if isinstance(task, Mapping):
        for name, value in task.items():
            if name in PRIVILEGED_FIELDS and value not in (None, "", [], {}):
                yield f"its field {name!r}"
            yield from _privileged_in(value)


def _read_secrets(run: ValidationRun) -> list[str]:
    """Return the texts of a JSON solution that are long enough to be distinctive."""
    declared = run.manifest.capabilities.oracle
    if declared is None or not declared.location.endswith(".json"):
        return []
    try:
        episodes = read_episodes(run.root / declared.location)
    except OracleError:
        return []  # the semantic level reports the error
    found = [text for episode in episodes for text in string_leaves(list(episode.actions or ()))]
    return sorted({text for text in found if len(text) >= SHORTEST_SECRET})


def _list_public_texts(evidence: Evidence) -> Iterator[tuple[str, str]]:
    surface, tools = evidence.get(ServerSurface), evidence.get(ToolSurvey)
    if surface is not None:
        yield surface.metadata.path, surface.metadata.body
    for tool in (tools.tools or ()) if tools is not None else ():
        yield f"the tool {tool.get('name')}", str(tool)
    tasks = evidence.get(TaskSurvey)
    for split, listed in (tasks.listed if tasks else {}).items():
        yield f"the tasks of {split}", str(listed)
