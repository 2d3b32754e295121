"""Checks of a package's image and Dockerfile."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from openenv._internal.dockerfile import DockerfileInstruction
from openenv.validation.graders import Subject
from openenv.validation.report import Judgment, accept, conclude_problems, reject, skip
from openenv.validation.static.builds import ImageBuilds
from openenv.validation.static.package import Package

SHOWN = 8
PREFIX = "org.opencontainers.image."
LABELS = ("title", "description", "version")
FURTHER_LABELS = ("revision", "source", "licenses")

Problem = tuple[str, str]

# ------------------------------------------------------------------ static.reproducible_build


def judge_reproducible_build(subject: Subject) -> Judgment:
    """Check that two builds of the same sources give the same image."""
    builds = subject.evidence.need(ImageBuilds)
    if builds.skipped is not None:
        return skip(builds.skipped, remediation=builds.hint)
    if builds.failure is not None:
        return reject(builds.failure, remediation=builds.hint or "mend its Dockerfile")
    first, second = builds.built
    locks = [one.locked.sha256 if one.locked else None for one in builds.built]
    measured = {
        "first": first.id,
        "second": second.id,
        "size_bytes": first.size_bytes,
        "locks": locks,
    }
    if not first.is_reproducible:
        return skip(
            f"image_build: {first.engine} gives files the time of the build",
            remediation="build with BuildKit, Podman or Buildah",
            **measured,
        )
    if first.id == second.id:
        return accept(f"two builds gave sha256:{first.id[:12]}", **measured)
    pairs = zip(*(image.layers for image in builds.images), strict=False)
    layers = [str(number) for number, (a, b) in enumerate(pairs, start=1) if a != b]
    where = f"layer {', '.join(layers)}" if layers else "its configuration"
    words = [f"two builds of the same sources differ in {where}"]
    if locks[0] != locks[1]:
        words.append("so does what they install: the lock of the first is not that of the second")
    return reject(
        *words,
        remediation="let no step of the Dockerfile write the time, a random number or what a "
        "network gives: pin what is fetched, and write `ARG SOURCE_DATE_EPOCH`",
        differing_layers=layers,
        **measured,
    )


def judge_sbom(subject: Subject) -> Judgment:
    """Check that the name and version of each component of the image are known."""
    builds = subject.evidence.need(ImageBuilds)
    if builds.skipped is not None:
        return skip(builds.skipped, remediation=builds.hint)
    if builds.failure is not None:
        return skip("there is no image: static.reproducible_build says why")
    if builds.bill is None:
        return reject(
            builds.why_no_bill,
            remediation="have Python and the metadata of what is installed in the image",
        )
    components = builds.bill.get("components") or []
    keys = ("name", "version", "purl")
    unknown = [str(one.get("name")) for one in components if not all(map(one.get, keys))]
    path = subject.outputs_dir / "sbom.cdx.json"
    path.write_text(json.dumps(builds.bill, indent=2) + "\n", encoding="utf-8")
    measured = {"components": len(components), "file": path.name}
    if unknown:
        return reject(
            f"nobody can tell which version it has of {', '.join(unknown[:SHOWN])}",
            remediation="install them as packages with a version, not as copied files",
            **measured,
        )
    return accept(f"{len(components)} components, each with its version", **measured)


def judge_oci_labels(subject: Subject) -> Judgment:
    """Check that the image has a title, a description and a version."""
    package = subject.evidence.need(Package)
    labels = {**_written_labels(package), **({} if package.plan is None else package.plan.labels)}
    own = {name.removeprefix(PREFIX): value for name, value in labels.items() if value}
    missing = [name for name in LABELS if not own.get(name)]
    measured = {"labels": labels, "further_missing": [n for n in FURTHER_LABELS if n not in own]}
    if missing:
        return reject(
            f"its image has no {', '.join(PREFIX + name for name in missing)}",
            remediation="; ".join(_label_cure(name, package) for name in missing),
            **measured,
        )
    return accept(f"{own['title']} {own['version']}: {own['description']}", **measured)


def _label_cure(name: str, package: Package) -> str:
    if package.plan is None:
        return f'in the Dockerfile write LABEL {PREFIX}{name}="..."'
    if name == "title":
        return "write name: in openenv.yaml"
    return f"write {name}: in openenv.yaml, or {name} = under [project] of pyproject.toml"


_LABEL = re.compile(r"([\w.-]+)=(?:\"([^\"]*)\"|'([^']*)'|(\S*))")


def _written_labels(package: Package) -> dict[str, str]:
    return {
        name: double or single or bare
        for instruction in package.final
        if instruction.name == "LABEL"
        for name, double, single, bare in _LABEL.findall(instruction.text)
    }


TOOLS = re.compile(
    r"(?<![\w-])(build-essential|build-base|gcc|g\+\+|clang|cmake|make|rustc|cargo|golang)(?![\w.-])"
)
_INSTALLS = re.compile(r"\b(apt-get|apt|apk|yum|dnf|microdnf)\s+(?:-\S+\s+)*(install|add)\b")
_REMOVES = re.compile(r"\b(purge|autoremove|apk\s+del|remove)\b")
_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_PIPED = re.compile(r"\b(curl|wget)\b[^|;&]*\|\s*(sudo\s+)?(ba|z|da)?sh\b")
_ROOT = ("", "0", "root")


def judge_image_hygiene(subject: Subject) -> Judgment:
    """Check that the image does not run as root, and has no leftovers or secrets."""
    package = subject.evidence.need(Package)
    if package.dockerfile is None:
        return reject(
            "it has no Dockerfile, so nothing says how its image is built",
            remediation="add server/Dockerfile; `openenv init` writes one to start from",
        )
    builds = subject.evidence.get(ImageBuilds)
    problems = [
        *_user_problems(package, builds),
        *_base_problems(package),
        *_final_problems(package),
        *_secret_problems(package),
        *_download_problems(package),
    ]
    source, stages = package.dockerfile.source, len(package.dockerfile.stages)
    measured: dict[str, Any] = {"dockerfile": source, "stages": stages}
    if builds is not None and builds.built:
        measured |= {"user": builds.built[0].user, "size_bytes": builds.built[0].size_bytes}
    said = f"{stages} stages, and nothing left over"
    return conclude_problems(problems, said, where=f"in {source}: ", **measured)


def _user_problems(package: Package, builds: ImageBuilds | None) -> Iterator[Problem]:
    told = [one.text for one in package.final if one.name == "USER"]
    user = told[-1] if told else ""
    if builds is not None and builds.built:
        user = builds.built[0].user
    if user.partition(":")[0] in _ROOT:
        yield "its program runs as root", "write `USER 1000:1000` before CMD"


def _base_problems(package: Package) -> Iterator[Problem]:
    assert package.dockerfile is not None
    for base in package.dockerfile.bases({}):  # the Dockerfile's own bases, regardless of --base
        _, _, tag = base.rpartition("/")[2].partition(":")
        if "@" not in base and tag in ("", "latest"):
            name = base.removesuffix(":latest")
            yield (
                f"it starts from {base}, which is another image every day",
                f"write `FROM {name}:VERSION`, or `FROM {name}@sha256:DIGEST`",
            )


def _final_problems(package: Package) -> Iterator[Problem]:
    variables = " ".join(one.text for one in package.final if one.name in ("ENV", "ARG"))
    for instruction in package.final:
        if instruction.name == "RUN":
            yield from _left_over(instruction, variables)


def _left_over(instruction: DockerfileInstruction, variables: str) -> Iterator[Problem]:
    text, line = instruction.text, instruction.line
    if _INSTALLS.search(text) and not _REMOVES.search(text) and (tool := TOOLS.search(text)):
        yield (
            f"line {line}: {tool[1]} stays in the image",
            f"install {tool[1]} in an earlier stage, and COPY --from it what was built",
        )
    if "--mount=type=cache" in text:
        return
    if re.search(r"\bapt(-get)?\s+(-\S+\s+)*install\b", text) and "/var/lib/apt/lists" not in text:
        yield (
            f"line {line}: the lists of apt stay in the image",
            "end the RUN with `&& rm -rf /var/lib/apt/lists/*`",
        )
    installs = re.search(r"(?<!uv )\bpip3?\s+install\b", text)
    if installs and "--no-cache-dir" not in text and "PIP_NO_CACHE_DIR" not in variables:
        yield (
            f"line {line}: pip's cache stays in the image",
            "write `pip install --no-cache-dir`",
        )


def _secret_problems(package: Package) -> Iterator[Problem]:
    for instruction in package.instructions:
        if instruction.name not in ("ENV", "ARG"):
            continue
        for name, value in re.findall(r"(\w+)=(\"[^\"]*\"|'[^']*'|\S*)", instruction.text):
            if _SECRET.search(name) and value.strip("\"'"):
                yield (
                    f"line {instruction.line}: {name} is written into the image, for everybody "
                    "who has it",
                    f"leave {name} out; give it to the server when it starts, or to a RUN by "
                    "--mount=type=secret",
                )


def _download_problems(package: Package) -> Iterator[Problem]:
    for instruction in package.instructions:
        if instruction.name == "ADD" and re.search(r"https?://", instruction.text):
            if "--checksum=" not in instruction.text:
                yield (
                    f"line {instruction.line}: ADD fetches what the address has on that day",
                    "write `ADD --checksum=sha256:DIGEST URL PATH`",
                )
        elif instruction.name == "RUN" and _PIPED.search(instruction.text):
            yield (
                f"line {instruction.line}: what is downloaded is run without being looked at",
                "download it to a file, compare its SHA-256, and run it then",
            )
