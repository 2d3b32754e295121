"""Checks of a package's declarations."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openenv.manifest import MANIFEST, ManifestProblem, check_manifest
from openenv.manifest import ManifestError as UnreadableManifest
from openenv.manifest.reading import read_document
from openenv.validation.graders import Subject
from openenv.validation.manifest import AnyManifest, DeclarationError, get_execution
from openenv.validation.policy import DeclarationBounds
from openenv.validation.probes import PlanError, read_plan
from openenv.validation.report import Judgment, accept, conclude, conclude_problems, reject
from openenv.validation.static.package import Package

# The maximum for one machine; larger numbers are probably in another unit.
MOST_CPU, MOST_MEMORY_MB, MOST_DISK_MB = 512.0, 4 * 1024**2, 64 * 1024**2
# The minimum for a server; Python alone, without imports, takes about 10 MB.
LEAST_MEMORY_MB = 32

FLOATING = {"main", "master", "latest", "head", "dev", "trunk", "nightly", "default", ""}
LOADERS = {"load_dataset", "snapshot_download", "hf_hub_download", "load_dataset_builder"}
REVISIONS = {"revision", "commit_hash"}


@dataclass(frozen=True)
class ManifestEvidence:
    """The result of reading the manifest: evidence of every run."""

    manifest: AnyManifest | None  # the declarations; None if they could not be read
    error: DeclarationError | None  # why the declarations could not be read
    bounds: DeclarationBounds  # the policy's limits for declarations
    policy_version: str


def judge_manifest(subject: Subject) -> Judgment:
    """Check that the declarations are complete and within the policy's bounds."""
    declared = subject.evidence.need(ManifestEvidence)
    if declared.error is not None or declared.manifest is None:
        error = declared.error or DeclarationError(["it cannot be read"])
        found = {"problems": error.problems, "warnings": _warnings(subject.root)}
        return reject(
            *error.errors,
            remediation=error.remediation,
            **{key: [one.as_data() for one in places] for key, places in found.items() if places},
        )
    reward, bounds = declared.manifest.reward, declared.bounds
    measured: dict[str, Any] = {
        "oracle_tolerance": reward.oracle_tolerance,
        "floor_margin": reward.floor_margin,
        "variance_tolerance": reward.variance_tolerance,
        "episode_timeout_s": declared.manifest.resources.episode_timeout_s,
        "bounds": bounds.model_dump(),
    }
    plan = subject.root / get_execution(declared.manifest).probe_path
    try:
        if plan.is_file():
            read_plan(plan)
    except PlanError as error:
        return reject(
            str(error),
            remediation="write it as openenv.validation.probes says, or leave it out: then actions "
            "are drawn from the schema",
            **measured,
        )
    if warnings := _warnings(subject.root):
        measured["warnings"] = [warning.as_data() for warning in warnings]
    problems = list(_out_of_bounds(declared.manifest, bounds))
    if problems:
        words = {
            field: f"{field} is {value:g}; policy {declared.policy_version} allows {allowed}"
            for field, value, allowed in problems
        }
        cures = (f"write {field}: a number that is {allowed}" for field, _, allowed in problems)
        measured["problems"] = _locate_fields(subject.root, words)
        return reject(*words.values(), remediation="; ".join(cures), **measured)
    return accept("every field is well formed and within the policy", **measured)


def _locate_fields(root: Path, words: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the fields' problems with locations, if the package has an openenv.yaml."""
    path = root / MANIFEST
    if not path.is_file():
        return []
    document = read_document(path)
    return [document.problem(tuple(f.split(".")), said).as_data() for f, said in words.items()]


def _warnings(root: Path) -> Sequence[ManifestProblem]:
    path = root / MANIFEST
    try:
        return check_manifest(path).warnings if path.is_file() else ()
    except UnreadableManifest:
        return ()


def _out_of_bounds(
    manifest: AnyManifest, bounds: DeclarationBounds
) -> Iterator[tuple[str, float, str]]:
    reward = manifest.reward
    width = reward.range[1] - reward.range[0]
    most = bounds.max_oracle_tolerance * width
    if reward.oracle_tolerance > most:
        yield "validation.reward.oracle_tolerance", reward.oracle_tolerance, f"at most {most:g}"
    least = bounds.min_floor_margin * width
    if reward.floor_margin < least:
        yield "validation.reward.floor_margin", reward.floor_margin, f"at least {least:g}"
    if reward.floor_margin > width:
        yield "validation.reward.floor_margin", reward.floor_margin, f"at most {width:g}"
    variance, most = reward.variance_tolerance, bounds.max_variance_tolerance * width**2
    if variance is not None and variance > most:
        yield "validation.reward.variance_tolerance", variance, f"at most {most:g}"


def judge_resources(subject: Subject) -> Judgment:
    """Check that the declared resources are plausible."""
    declared = subject.manifest.resources
    gpus = f", {declared.gpus} GPUs" if declared.gpus else ""
    return conclude_problems(
        _implausible(subject),
        f"{declared.cpu:g} cores, {declared.memory_mb} MB of memory, {declared.disk_mb} MB of "
        f"disk{gpus}, {declared.episode_timeout_s:g} s an episode",
        **declared.model_dump(),
    )


def _implausible(subject: Subject) -> Iterator[tuple[str, str]]:
    declared = subject.manifest.resources
    where = "validation.resources"
    for name, value, most, unit in (
        ("cpu", declared.cpu, MOST_CPU, "cores"),
        ("memory_mb", declared.memory_mb, MOST_MEMORY_MB, "megabytes"),
        ("disk_mb", declared.disk_mb, MOST_DISK_MB, "megabytes"),
    ):
        if value > most:
            yield (
                f"{where}.{name} is {value:,g}, more than any machine has",
                f"write {where}.{name} in {unit}",
            )
    if declared.memory_mb < LEAST_MEMORY_MB:
        yield (
            f"{where}.memory_mb is {declared.memory_mb}, less than a Python server takes",
            f"write {where}.memory_mb in megabytes, such as memory_mb: 1024",
        )
    if declared.gpu_types and not declared.gpus:
        yield (
            f"{where}.gpu_types lists {', '.join(declared.gpu_types)}, and gpus is 0",
            f"write {where}.gpus: 1, or leave gpu_types out",
        )
    dockerfile = subject.evidence.need(Package).dockerfile
    bases = [] if dockerfile is None else dockerfile.bases({})
    base = next((base for base in bases if "cuda" in base.lower()), None)
    if base and not declared.gpus:
        yield (
            f"its image starts from {base}, and {where}.gpus is 0",
            f"write {where}.gpus: 1, or start from an image without CUDA",
        )


def judge_timeout(subject: Subject) -> Judgment:
    """Check that the declared time limit of an episode is within the policy's limit."""
    declared = subject.evidence.need(ManifestEvidence)
    told = subject.manifest.resources.episode_timeout_s
    most = declared.bounds.max_episode_timeout_s
    why = f"an episode may take {told:g} s; policy {declared.policy_version} allows {most:g} s"
    return conclude(
        [why] if told > most else [],
        f"write validation.resources.episode_timeout_s: {most:g}, or less",
        f"an episode may take {told:g} s, of {most:g} s that are allowed",
        episode_timeout_s=told,
        max_episode_timeout_s=most,
    )


def judge_task_distribution(subject: Subject) -> Judgment:
    """Check that the tasks and the loaded data sets are pinned."""
    manifest = subject.manifest
    pin = manifest.task_distribution
    loaded = list(_unpinned_loads(subject.evidence.need(Package)))
    measured: dict[str, Any] = {
        "task_distribution": None if pin is None else pin.model_dump(),
        "unpinned_loads": [f"{file}:{line}" for file, line, _ in loaded],
    }
    problems = [
        (
            f"{file}:{line} calls {name} without a revision: its data can change at any time",
            f'in {file}, line {line}, write {name}(..., revision="<commit>")',
        )
        for file, line, name in loaded
    ]
    problems += _pin_problems(manifest)
    told = "it declares no tasks, and loads no data set"
    if pin is not None:
        pins = (f"{k} {v}" for k, v in pin.model_dump().items() if v is not None)
        told = f"pinned by {', '.join(pins)}"
    return conclude_problems(problems, told, **measured)


def _pin_problems(manifest: AnyManifest) -> Iterator[tuple[str, str]]:
    where = "validation.task_distribution"
    pin, declared = manifest.task_distribution, manifest.capabilities
    if pin is None:
        if declared.task_api or declared.declared_task_count:
            yield (
                f"it has tasks, and {where} is missing",
                f"write {where}: {{generator_seed: 0}} for tasks that a program makes or holds, "
                "or {dataset_version: <commit>} for a data set",
            )
    elif pin.dataset_version is None and pin.generator_seed is None:
        yield (
            f"{where} gives neither generator_seed nor dataset_version",
            f"write {where}.generator_seed: 0, or dataset_version: <commit>",
        )
    elif pin.dataset_version is not None and pin.dataset_version.strip().lower() in FLOATING:
        yield (
            f"{where}.dataset_version is {pin.dataset_version!r}, which names another state every "
            "day",
            f"write {where}.dataset_version: the commit's hash",
        )


def _unpinned_loads(package: Package) -> Iterator[tuple[str, int, str]]:
    """Yield calls that fetch data from a hub without a revision."""
    for file, text in package.sources():
        is_test = file.startswith("tests/") or "/tests/" in file
        if is_test or not any(name in text for name in LOADERS):
            continue
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue  # the runtime level reports what cannot be imported
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
                given = {keyword.arg for keyword in node.keywords}
                if name in LOADERS and not given & REVISIONS and None not in given:
                    yield file, node.lineno, name
