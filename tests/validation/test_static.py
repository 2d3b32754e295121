"""The static level: each thing that is wrong with a package is found by its own check."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.validated import DOCKERFILE, LOCK, replace, write_package

from openenv.images import BuiltImage
from openenv.images.engines import EngineImage
from openenv.validation import CheckResult, CheckStatus, Level, Subject, run_validation
from openenv.validation.graders import Evidence
from openenv.validation.parsers import default_parsers
from openenv.validation.static import graders
from openenv.validation.static.builds import ImageBuilds
from openenv.validation.static.package import PackageError
from openenv.validation.static.pinning import read_lock
from openenv.validation.types import SignatureKind

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "validation.md"

# What is planted in what came of two builds; see `test_what_two_builds_say`.
NEEDS_IMAGE = {
    "static.reproducible_build": "a layer that differs",
    "static.sbom": "a component without a version",
}


class Mutant(NamedTuple):
    """One thing that is made wrong, and the check that finds it."""

    name: str
    check_id: str
    spoil: Callable[[Path], None]
    says: str


def manifest(old: str, new: str) -> Callable[[Path], None]:
    return lambda package: replace(package, "openenv.yaml", old, new)


def dockerfile(old: str, new: str) -> Callable[[Path], None]:
    return lambda package: replace(package, "server/Dockerfile", old, new)


def written(file: str, text: str) -> Callable[[Path], None]:
    def spoil(package: Path) -> None:
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).write_text(text, encoding="utf-8")

    return spoil


def removed(file: str) -> Callable[[Path], None]:
    return lambda package: (package / file).unlink()


def archived(file: str) -> Callable[[Path], None]:
    def spoil(package: Path) -> None:
        with zipfile.ZipFile(package / file, "w") as archive:
            archive.writestr("inside", "x" * 100)

    return spoil


def linked_out(package: Path) -> None:
    (package / "data").symlink_to("../../elsewhere")


def without_description(package: Path) -> None:
    replace(package, "openenv.yaml", "description: A lamp that is switched on\n", "")
    replace(package, "pyproject.toml", 'description = "A lamp that is switched on"\n', "")


LOADS = "from datasets import load_dataset\nrows = load_dataset('somebody/tasks')\n"
FINAL_RUN = "RUN useradd --create-home --uid 1000 app"

MUTANTS = [
    Mutant("a misspelled field", "static.manifest", manifest("floor_margin", "flor_margin"), "did"),
    Mutant("a floor margin of 0", "static.manifest", manifest("margin: 0.5", "margin: 0"), "0.1"),
    Mutant(
        "a lenient oracle", "static.manifest", manifest("tolerance: 0.0", "tolerance: 0.4"), "most"
    ),
    Mutant(
        "no validation section",
        "static.manifest",
        manifest("validation:", "validatoin:"),
        "section",
    ),
    Mutant(
        "memory in bytes",
        "static.resource_declaration",
        manifest("memory_mb: 512", "memory_mb: 536870912"),
        "memory_mb",
    ),
    Mutant(
        "memory in gigabytes",
        "static.resource_declaration",
        manifest("memory_mb: 512", "memory_mb: 1"),
        "memory_mb",
    ),
    Mutant(
        "GPU types without GPUs",
        "static.resource_declaration",
        manifest("disk_mb: 256", "disk_mb: 256, gpu_types: [H200]"),
        "gpus is 0",
    ),
    Mutant(
        "CUDA without a GPU",
        "static.resource_declaration",
        dockerfile("\nFROM python:3.12-slim\n", "\nFROM nvidia/cuda:12.4-runtime\n"),
        "cuda",
    ),
    Mutant(
        "episodes of two hours",
        "static.timeout_ceiling",
        manifest("timeout_s: 60", "timeout_s: 7200"),
        "7200",
    ),
    Mutant(
        "unpinned tasks",
        "static.task_distribution_pinning",
        lambda package: (
            manifest("task_api: false", "task_api: true")(package),
            manifest("  task_distribution: {generator_seed: 7}\n", "")(package),
        )[0],
        "missing",
    ),
    Mutant(
        "an unpinned dataset",
        "static.task_distribution_pinning",
        manifest("{generator_seed: 7}", "{dataset_version: main}"),
        "main",
    ),
    Mutant(
        "a dataset without a revision",
        "static.task_distribution_pinning",
        written("server/tasks.py", LOADS),
        "server/tasks.py:2",
    ),
    Mutant("an archive", "static.layout", archived("data.zip"), "zip"),
    Mutant("an archive with another extension", "static.layout", archived("data.bin"), "data.bin"),
    Mutant("a secret", "static.layout", written(".env", "KEY=1\n"), ".env"),
    Mutant("a link out of the package", "static.layout", linked_out, "data"),
    Mutant("a missing oracle", "static.layout", removed("validation/oracle.json"), "oracle"),
    Mutant("root", "static.image_hygiene", dockerfile("USER 1000:1000\n", ""), "root"),
    Mutant(
        "a compiler in the image",
        "static.image_hygiene",
        dockerfile(
            FINAL_RUN,
            f"{FINAL_RUN} && apt-get install -y gcc && rm -rf /var/lib/apt/lists/*",
        ),
        "gcc",
    ),
    Mutant(
        "apt's package lists",
        "static.image_hygiene",
        dockerfile(FINAL_RUN, f"{FINAL_RUN} && apt-get update && apt-get install -y tini"),
        "lists",
    ),
    Mutant(
        "a secret in the image",
        "static.image_hygiene",
        dockerfile("USER 1000:1000", "ENV HF_TOKEN=hf_abc\nUSER 1000:1000"),
        "HF_TOKEN",
    ),
    Mutant(
        "an unpinned base image",
        "static.image_hygiene",
        dockerfile("\nFROM python:3.12-slim\n", "\nFROM python\n"),
        "python",
    ),
    Mutant(
        "a downloaded script",
        "static.image_hygiene",
        dockerfile("RUN python3", "RUN curl -sSf https://x.example/i.sh | sh && python3"),
        "looked at",
    ),
    Mutant(
        "a downloaded file",
        "static.image_hygiene",
        dockerfile("COPY . /build", "ADD https://x.example/a /a\nCOPY . /build"),
        "ADD",
    ),
    Mutant("no description", "static.oci_labels", without_description, "description"),
    Mutant("no lock", "static.dependency_pinning", removed("uv.lock"), "httpx"),
    Mutant(
        "an outdated lock",
        "static.dependency_pinning",
        lambda package: replace(package, "pyproject.toml", "httpx>=0.28", "requests>=2"),
        "requests",
    ),
    Mutant(
        "a lock without a hash",
        "static.dependency_pinning",
        lambda package: replace(package, "uv.lock", ', hash = "sha256:00"', ""),
        "hash",
    ),
    Mutant(
        "an install without a version",
        "static.dependency_pinning",
        dockerfile("--require-hashes -r /build/lamp_env/lock.txt", "httpx"),
        "httpx",
    ),
]


def statuses(package: Path) -> Mapping[str, CheckResult]:
    report = run_validation(package, max_level=Level.STATIC, skip_build=True)
    return {result.check_id: result for result in report.results}


def test_nothing_is_wrong_with_the_good_package(tmp_path: Path) -> None:
    found = statuses(write_package(tmp_path))
    assert len(found) == 10
    skips = {name for name, result in found.items() if result.status is CheckStatus.SKIP}
    assert skips == NEEDS_IMAGE.keys()
    others = [result for name, result in found.items() if name not in skips]
    assert {result.status for result in others} == {CheckStatus.PASS}, others


def test_the_wheel_of_openenv_that_the_package_names_is_no_stray_archive(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    archived("openenv-1.whl")(package)
    assert statuses(package)["static.layout"].status is CheckStatus.FAIL
    with (package / "pyproject.toml").open("a") as file:
        file.write('\n[tool.uv.sources]\nopenenv = { path = "openenv-1.whl" }\n')
    assert statuses(package)["static.layout"].status is CheckStatus.PASS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_each_fault_is_found_by_its_own_check_alone(mutant: Mutant, tmp_path: Path) -> None:
    package = write_package(tmp_path)
    before = statuses(package)
    mutant.spoil(package)
    after = statuses(package)
    failed = {name for name, result in after.items() if result.status is CheckStatus.FAIL}
    assert failed == {mutant.check_id}
    found = after[mutant.check_id]
    assert mutant.says in " ".join(found.evidence)
    assert found.remediation
    for name, result in after.items():
        if name != mutant.check_id and result.status is not before[name].status:
            # What depends on it says so, and has not been judged.
            assert result.status is CheckStatus.SKIP
            assert mutant.check_id in result.evidence[0]


def test_every_check_that_reads_the_package_has_a_mutant() -> None:
    assert {mutant.check_id for mutant in MUTANTS} == {
        grader.check_id for grader in graders()
    } - NEEDS_IMAGE.keys()


def test_the_guide_lists_what_is_planted() -> None:
    rows = [line.split("|") for line in GUIDE.read_text().splitlines() if line.startswith("| `s")]
    told = {row[1].strip(" `"): row[3].strip() for row in rows if "static." in row[1]}
    planted = dict(NEEDS_IMAGE)
    for mutant in MUTANTS:
        before = f"{planted[mutant.check_id]}; " if mutant.check_id in planted else ""
        planted[mutant.check_id] = before + mutant.name
    assert told == planted


# ------------------------------------------------------------------ images


def built(id: str, **changes: Any) -> BuiltImage:
    values = {
        "id": id,
        "tags": (),
        "size_bytes": 1,
        "user": "1000:1000",
        "engine": "podman",
        "locked": None,
        "sbom_sha256": None,
        "is_reproducible": True,
    }
    return BuiltImage(**{**values, **changes})


BILL = {"components": [{"name": "httpx", "version": "0.28.1", "purl": "pkg:pypi/httpx@0.28.1"}]}


def judged(package: Path, outputs: Path, check_id: str, builds: ImageBuilds) -> CheckResult:
    """What a check says of builds that came out so."""
    from openenv.validation.static.package import read_package

    parsed = default_parsers().parser_for(SignatureKind.OPENENV_SERVED).parse(package)
    evidence = Evidence(builds, read_package(package, parsed))
    (grader,) = (one for one in graders() if one.check_id == check_id)
    return grader.run(Subject(package, parsed, None, None, outputs, evidence=evidence))


def images(*layers: tuple[str, ...]) -> tuple[EngineImage, ...]:
    return tuple(EngineImage("a", 1, "", one) for one in layers)


REPRODUCIBLE, SBOM = "static.reproducible_build", "static.sbom"


@pytest.mark.parametrize(
    ("check_id", "builds", "status", "says"),
    [
        (REPRODUCIBLE, ImageBuilds(built=(built("a"), built("a"))), CheckStatus.PASS, "two builds"),
        (
            REPRODUCIBLE,
            ImageBuilds(
                built=(built("a"), built("b")), images=images(("x", "y", "z"), ("x", "w", "z"))
            ),
            CheckStatus.FAIL,
            "layer 2",
        ),
        (
            REPRODUCIBLE,
            ImageBuilds(built=(built("a"), built("b")), images=images(("x",), ("x",))),
            CheckStatus.FAIL,
            "configuration",
        ),
        (
            REPRODUCIBLE,
            ImageBuilds(built=(built("a", is_reproducible=False),) * 2),
            CheckStatus.SKIP,
            "time of the build",
        ),
        (REPRODUCIBLE, ImageBuilds(failure="it failed at: RUN false"), CheckStatus.FAIL, "RUN"),
        (REPRODUCIBLE, ImageBuilds(skipped="image_build: none"), CheckStatus.SKIP, "image_build"),
        (SBOM, ImageBuilds(built=(built("a"),) * 2, bill=BILL), CheckStatus.PASS, "1 components"),
        (
            SBOM,
            ImageBuilds(built=(built("a"),) * 2, bill={"components": [{"name": "copied"}]}),
            CheckStatus.FAIL,
            "copied",
        ),
        (
            SBOM,
            ImageBuilds(built=(built("a"),) * 2, why_no_bill="no Python"),
            CheckStatus.FAIL,
            "no Python",
        ),
        (SBOM, ImageBuilds(failure="it failed"), CheckStatus.SKIP, "no image"),
        (SBOM, ImageBuilds(skipped="--skip-build"), CheckStatus.SKIP, "--skip-build"),
    ],
)
def test_what_two_builds_say(
    check_id: str, builds: ImageBuilds, status: CheckStatus, says: str, tmp_path: Path
) -> None:
    package = write_package(tmp_path)
    result = judged(package, tmp_path, check_id, builds)
    assert (result.status, says in " ".join(result.evidence)) == (status, True), result


def test_the_bill_of_materials_is_kept(tmp_path: Path) -> None:
    builds = ImageBuilds(built=(built("a"),) * 2, bill=BILL)
    result = judged(write_package(tmp_path), tmp_path, SBOM, builds)
    assert (tmp_path / str(result.measured["file"])).exists()


def test_the_image_says_more_of_its_user_than_the_dockerfile(tmp_path: Path) -> None:
    builds = ImageBuilds(built=(built("a", user="root"),) * 2)
    result = judged(write_package(tmp_path), tmp_path, "static.image_hygiene", builds)
    assert result.status is CheckStatus.FAIL


# ------------------------------------------------------------------ reading


@pytest.mark.parametrize("text", ["[project\n", "project = 3\n", "[project]\ndependencies = 3\n"])
def test_a_package_whose_project_cannot_be_read_is_reported(text: str, tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "pyproject.toml").write_text(text)
    found = statuses(package)
    assert found["static.layout"].status is CheckStatus.FAIL
    assert "pyproject.toml" in found["static.layout"].evidence[0]
    assert CheckStatus.ERROR not in {result.status for result in found.values()}


@pytest.mark.parametrize(
    "text", ["package = 3\n", 'package = ["httpx"]\n', '[[package]]\nname = "httpx"\nwheels = 3\n']
)
def test_a_lock_that_is_none_fails_and_breaks_nothing(text: str, tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "uv.lock").write_text(text)
    found = statuses(package)["static.dependency_pinning"]
    assert found.status is CheckStatus.FAIL
    assert "uv.lock" in found.evidence[0]


def test_a_dockerfile_that_is_no_text_is_named(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "server" / "Dockerfile").write_bytes(b"\xff")
    with pytest.raises(PackageError, match="server/Dockerfile cannot be read"):
        statuses(package)


def test_what_a_here_document_installs_is_found(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    document = f"{FINAL_RUN}\nRUN <<EOF\napt-get update\napt-get install -y gcc\nEOF\n"
    replace(package, "server/Dockerfile", FINAL_RUN, document)
    found = statuses(package)["static.image_hygiene"]
    assert found.status is CheckStatus.FAIL
    assert "gcc" in " ".join(found.evidence)


def test_nothing_of_a_package_is_run_by_reading_it(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    trap = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n"
    for name in ("__init__.py", "server/__init__.py", "server/app.py", "setup.py"):
        (package / name).write_text(trap)
    statuses(package)
    assert list(package.rglob("ran")) == []


@pytest.mark.parametrize(
    ("name", "text", "versions", "without"),
    [
        ("uv.lock", LOCK, {"openenv-lamp-env": "0.1.0", "httpx": "0.28.1"}, ()),
        (
            "uv.lock",
            '[[package]]\nname = "A_b"\nversion = "1"\nsource = { git = "https://x#'
            + "0" * 40
            + '" }\n',
            {"a-b": "1"},
            (),
        ),
        (
            "uv.lock",
            '[[package]]\nname = "a"\nversion = "1"\nsource = { git = "https://x?branch=main" }\n',
            {"a": "1"},
            ("a",),
        ),
        (
            "poetry.lock",
            '[[package]]\nname = "a"\nversion = "1"\nfiles = [{file = "a", hash = "sha256:0"}]\n',
            {"a": "1"},
            (),
        ),
        (
            "pylock.toml",
            '[[packages]]\nname = "a"\nversion = "1"\nwheels = [{hashes = {sha256 = "0"}}]\n',
            {"a": "1"},
            (),
        ),
        (
            "requirements.txt",
            "a==1 \\\n    --hash=sha256:0\nb[x]==2\n# c==3\n",
            {"a": "1", "b": "2"},
            ("b",),
        ),
    ],
)
def test_locks_of_every_kind_are_read(
    name: str, text: str, versions: dict[str, str], without: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    lock = read_lock(tmp_path / name)
    assert lock is not None
    assert (lock.versions, lock.without_hash) == (versions, without)


def test_a_list_without_versions_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("openenv\nhttpx>=0.28\n")
    assert read_lock(tmp_path / "requirements.txt") is None


def test_what_an_earlier_stage_installs_is_not_in_the_image(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    text = DOCKERFILE.replace("RUN python3", "RUN apt-get install -y gcc && python3", 1)
    (package / "server" / "Dockerfile").write_text(text)
    assert statuses(package)["static.image_hygiene"].status is CheckStatus.PASS


def test_what_a_stage_is_built_on_is_in_the_image(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    text = DOCKERFILE.replace("RUN python3", "RUN apt-get install -y gcc && python3", 1)
    text = text.replace("\nFROM python:3.12-slim\n", "\nFROM builder\n")
    (package / "server" / "Dockerfile").write_text(text)
    assert statuses(package)["static.image_hygiene"].status is CheckStatus.FAIL
