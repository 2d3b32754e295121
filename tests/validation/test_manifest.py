"""Reading packages: their form, what they declare, and one sentence for each wrong field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.validated import MANIFEST, write_package

from openenv.validation import (
    DeclarationError,
    ParserRegistry,
    SignatureError,
    SignatureKind,
    UnsupportedPackageError,
    detect_signature,
)
from openenv.validation.manifest import AnyManifest, is_portable
from openenv.validation.parsers import default_parsers
from openenv.validation.schemas import FILES, read_schema, render_schema
from openenv.validation.targets import source_digest

SERVED, HARBOR, POSTTRAIN = SignatureKind

HARBOR_TASK = """\
schema_version = "1.4"
[task]
name = "org/lamp"
[metadata]
category = "programming"
[agent]
timeout_sec = 120.0
[verifier]
timeout_sec = 60.0
[environment]
cpus = 2
memory_mb = 2048
storage_mb = 10240
"""

POSTTRAIN_TASK = """\
---
name: lamp
agent: {timeout_sec: 90}
environment: {cpus: 1, memory: 2G, storage: 512M, allow_internet: false}
tags: [toy, swe]
validation:
  reward: {floor_margin: 0.9}
---
Switch it on.
"""


def parsed(text: str, directory: Path, kind: SignatureKind = SERVED) -> AnyManifest:
    (directory / kind.value).write_text(text, encoding="utf-8")
    return default_parsers().parser_for(detect_signature(directory)).parse(directory)


def problems(text: str, directory: Path, kind: SignatureKind = SERVED) -> list[str]:
    with pytest.raises(DeclarationError) as caught:
        parsed(text, directory, kind)
    return caught.value.errors


# ------------------------------------------------------------------ forms


def test_a_package_is_told_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "task.toml").touch()
    assert detect_signature(tmp_path) is HARBOR


def test_a_task_of_markdown_needs_front_matter(tmp_path: Path) -> None:
    (tmp_path / "task.md").write_text("# A task\n---\n")
    with pytest.raises(SignatureError):
        detect_signature(tmp_path)
    (tmp_path / "task.md").write_text("---\nname: x\n---\n")
    assert detect_signature(tmp_path) is POSTTRAIN


def test_two_forms_in_one_directory_are_never_guessed_at(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "task.toml").touch()
    with pytest.raises(SignatureError, match=r"openenv\.yaml, task\.toml"):
        detect_signature(package)


def test_a_form_without_a_parser_is_refused() -> None:
    with pytest.raises(UnsupportedPackageError) as caught:
        ParserRegistry().parser_for(HARBOR)
    assert caught.value.category == "parser-not-implemented"


# ------------------------------------------------------------------ fields


def test_what_is_declared_is_read(tmp_path: Path) -> None:
    found = parsed(MANIFEST, tmp_path)
    assert (found.name, found.version, found.manifest_schema_version) == ("lamp_env", "0.1.0", "1")
    assert found.reward.range == (0.0, 1.0) and found.network.mode == "public"


def test_a_section_on_execution_makes_the_second_schema(tmp_path: Path) -> None:
    found = parsed(MANIFEST + "  execution: {}\n", tmp_path)
    assert found.manifest_schema_version == "2"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("oracle_tol", "orcle_tol", "reward.orcle_tolerance: is not a field; did you mean oracle_"),
        ("floor_margin: 0.5", "", "reward.floor_margin: is missing"),
        ("[0.0, 1.0]", "[1.0, 0.0]", "reward.range: expected [lowest, highest]"),
        ("[0.0, 1.0]", "[0.0, .inf]", "reward.range: expected [lowest, highest]"),
        ("cpu: 1", "cpu: 0", "resources.cpu: input should be greater than 0, not 0"),
        ("reward_channel", "script", "capabilities.verifier: kind script needs entry"),
        ("reward_channel", "hosted", "capabilities.verifier.kind: "),
        ("task_api: false", "llm_judged: true", "validation: capabilities.llm_judged needs judge"),
        ("[toy]", "[]", "types.tags: "),
        ("name: lamp_env\n", "", "name: is missing"),
        ("  types:", "  network: {mode: allowlist}\n  types:", "network: mode allowlist needs"),
        (
            "  types:",
            "  network: {allowed_hosts: [a.example]}\n  types:",
            "network: allowed_hosts has no meaning",
        ),
        ("  types:", "  judge: {model: a, version: b}\n  types:", "validation: judge is given"),
        (
            "  types:",
            "  execution: {probe_path: ../x}\n  types:",
            "execution.probe_path: '../x' must be a path within",
        ),
        ("  types:", "  speed: 1\n  types:", "speed: is not a field; there are reward, judge"),
    ],
)
def test_a_wrong_field_is_named(old: str, new: str, says: str, tmp_path: Path) -> None:
    assert old in MANIFEST
    (problem,) = problems(MANIFEST.replace(old, new), tmp_path)
    place, _, words = problem.partition(" ")
    assert re.fullmatch(r"openenv\.yaml:\d+:\d+:", place)
    assert words.removeprefix("validation.").startswith(says)


def test_every_wrong_field_has_its_sentence(tmp_path: Path) -> None:
    text = MANIFEST.replace("cpu: 1", "cpu: -1").replace("[toy]", "[]")
    assert len(problems(text, tmp_path)) == 2


@pytest.mark.parametrize("text", ["- a", "a: [", "name: x", "name: x\nvalidation: 3"])
def test_what_is_no_manifest_is_an_error_and_no_crash(text: str, tmp_path: Path) -> None:
    assert problems(text, tmp_path)


def test_a_missing_section_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError) as caught:
        parsed("name: x", tmp_path)
    example = str(caught.value.remediation).partition("\n")[2]
    assert parsed(f"name: x\n{example}", tmp_path).name == "x"


@pytest.mark.parametrize("category", ["hosted-verifier", "multi-agent", "simulated-user"])
def test_what_cannot_be_validated_is_refused_by_name(category: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedPackageError) as caught:
        parsed(MANIFEST.replace("toy", category), tmp_path)
    assert caught.value.category == category


# ------------------------------------------------------------------ tasks


def test_a_task_of_harbor_is_read(tmp_path: Path) -> None:
    (tmp_path / "solution").mkdir()
    (tmp_path / "solution" / "solve.sh").touch()
    found = parsed(HARBOR_TASK, tmp_path, HARBOR)
    assert found.resources.model_dump() == {
        "cpu": 2.0,
        "memory_mb": 2048,
        "disk_mb": 10240,
        "episode_timeout_s": 120.0,
        "gpus": 0,
        "gpu_types": [],
    }
    assert found.capabilities.oracle is not None
    assert found.capabilities.verifier.entry == "tests/test.sh"
    assert (found.name, found.types.tags) == ("org/lamp", ["programming"])


def test_a_task_of_posttrain_is_read(tmp_path: Path) -> None:
    found = parsed(POSTTRAIN_TASK, tmp_path, POSTTRAIN)
    assert (found.resources.memory_mb, found.resources.disk_mb) == (2048, 512)
    assert (found.network.mode, found.reward.floor_margin) == ("no-network", 0.9)
    assert found.capabilities.oracle is None


@pytest.mark.parametrize(
    ("text", "category"),
    [
        (f'{HARBOR_TASK}\n[verifier.env]\nOPENAI_API_KEY = "x"\n', "hosted-verifier"),
        (f"agents = [1, 2]\n{HARBOR_TASK}", "multi-agent"),
        (f'simulated_user = "gpt"\n{HARBOR_TASK}', "simulated-user"),
    ],
)
def test_a_task_that_cannot_be_validated_is_refused(
    text: str, category: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedPackageError) as caught:
        parsed(text, tmp_path, HARBOR)
    assert caught.value.category == category


def test_what_a_task_does_not_say_is_missing(tmp_path: Path) -> None:
    found = problems(HARBOR_TASK.replace("cpus = 2\n", ""), tmp_path, HARBOR)
    assert found == ["resources.cpu: is missing"]


@pytest.mark.parametrize("text", ["a = [", 'environment = "x"', '[environment]\nmemory = "much"'])
def test_a_task_that_cannot_be_read_is_an_error(text: str, tmp_path: Path) -> None:
    assert problems(text, tmp_path, HARBOR)


# ------------------------------------------------------------------ schemas, paths, digests


@pytest.mark.parametrize("name", FILES)
def test_the_schemas_are_those_of_the_models(name: str) -> None:
    assert read_schema(name) == render_schema(FILES[name]), "write them anew: write_schemas"


@pytest.mark.parametrize(
    ("path", "portable"),
    [("a/b.json", True), ("", False), ("/a", False), ("a/../b", False), ("a\\b", False)],
)
def test_a_portable_path_stays_in_the_package(path: str, portable: bool) -> None:
    assert is_portable(path) is portable


def test_the_digest_is_that_of_the_public_package(tmp_path: Path) -> None:
    """The digest that openenv 0.10.0 gives for these files."""
    files = {"a/b": "1\n", "a-b": "2\n", "a.b": "3\n", "A": "4\n", ".hidden/k": "9\n"}
    left_out = {"a/__pycache__/x": "5", ".git/x": "6", "outputs/y": "7", "sub/outputs/z": "8"}
    for name, text in {**files, **left_out}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    digest = source_digest(tmp_path)
    assert digest == "460fe574f5949cc05d8e4bc90b8c0f3fcf27385e3486631bf4e7f427a2240a9c"
    (tmp_path / "a.b").write_text("3!\n")
    assert source_digest(tmp_path) != digest


def test_what_a_link_leads_to_is_part_of_the_digest(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("one")
    digest = source_digest(tmp_path)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("two")
    assert source_digest(tmp_path) != digest
