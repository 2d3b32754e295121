"""`openenv.yaml`: what is wrong has its place, what hurts is refused, what is old is understood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from support.commands import run_openenv

from openenv.manifest import (
    MANIFEST,
    Manifest,
    ManifestError,
    ManifestProblem,
    check_manifest,
    manifest_schema,
    migrate_manifest,
    read_manifest,
)
from openenv.manifest.checking import check_text
from openenv.manifest.model import ValidationSection
from openenv.manifest.reading import MAX_BYTES

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = sorted(path.parent for path in (ROOT / "envs").glob(f"*/{MANIFEST}"))

# As authors wrote them before there was a schema: fields of their own, none of the form.
WILD = """\
name: code-review-agent
version: 1.0.0
description: >
  Agents find bugs,
  and mend them.
author: somebody
license: MIT
tags:
  - code-review
tasks:
  - {id: easy, difficulty: easy}
observation_space: {type: object}
"""


def only(text: str) -> ManifestProblem:
    (problem,) = check_text(text).errors
    return problem


# ------------------------------------------------------------------ what may stand there


@pytest.mark.parametrize("directory", ENVIRONMENTS, ids=lambda path: str(path.name))
def test_the_manifests_of_our_environments_have_nothing_wrong(directory: Path) -> None:
    checked = check_manifest(directory / MANIFEST)
    assert (checked.errors, checked.warnings) == ((), ())
    assert checked.manifest is not None and checked.manifest.validation is not None


def test_a_manifest_that_says_its_name_only_has_defaults() -> None:
    manifest = check_text("name: x\n").manifest
    assert manifest is not None and manifest == Manifest(name="x")
    assert (manifest.app, manifest.port, manifest.type) == ("server.app:app", 8000, "space")


def test_what_was_written_before_there_was_a_schema_is_understood() -> None:
    checked = check_text(WILD)
    assert checked.manifest is not None
    assert (checked.manifest.spec_version, checked.manifest.version) == (1, "1.0.0")
    assert [warning.path for warning in checked.warnings] == ["tasks", "observation_space"]


@pytest.mark.parametrize("written", ["1", '"1"', "1.0", '"1.0"'])
def test_every_way_to_write_the_first_version_is_understood(written: str) -> None:
    checked = check_text(f"name: x\nspec_version: {written}\n")
    assert checked.manifest is not None and checked.manifest.spec_version == 1


def test_a_value_that_was_meant_as_text_is_text() -> None:
    checked = check_text("name: x\nvariables: {A: 1, B: true, C: 2024-01-02, D: x}\n")
    assert checked.manifest is not None
    assert checked.manifest.variables == {"A": "1", "B": "true", "C": "2024-01-02", "D": "x"}
    assert [warning.path for warning in checked.warnings] == ["variables.A", "variables.C"]


def test_a_version_that_yaml_would_shorten_is_pointed_at() -> None:
    (warning,) = check_text("name: x\nversion: 0.10\n").warnings
    assert 'write "0.10"' in warning.message and (warning.line, warning.column) == (2, 10)


def test_a_name_that_is_unknown_is_a_warning_and_says_which_was_meant() -> None:
    checked = check_text("name: x\ndescripton: y\n")
    assert checked.manifest is not None
    assert "did you mean description?" in checked.warnings[0].message


# ------------------------------------------------------------------ where it stands


@pytest.mark.parametrize(
    ("text", "place", "marked"),
    [
        ("name: x\nport: 99999 # high\n", (2, 7), "99999"),
        ("name: x\nvariables:\n  A-B: x\n", (3, 3), "A-B"),
        ("name: x\napp: [a]\n", (2, 6), "[a]"),
        ("name: x\nspec_version: two\n", (2, 15), "two"),
        ("name: x\ntags: [a, [b]]\n", (2, 11), "[b]"),
        ("port: 1\n", (1, 1), "p"),
    ],
)
def test_an_error_has_the_place_of_what_is_wrong(
    text: str, place: tuple[int, int], marked: str
) -> None:
    problem = only(text)
    assert (problem.line, problem.column) == place
    start = problem.column - 1
    assert problem.source[start : start + problem.width] == marked


def test_a_field_that_is_missing_stands_where_it_should_be() -> None:
    text = yaml.safe_dump({"name": "x", "validation": _section()}, sort_keys=False)
    problem = only(text.replace("    floor_margin: 0.5\n", "    oracle_tolerance: 0.0\n"))
    assert problem.path == "validation.reward.floor_margin"
    assert problem.source.strip() == "reward:"


def test_the_section_on_validation_is_strict() -> None:
    text = yaml.safe_dump({"name": "x", "validation": {**_section(), "resorces": 1}})
    problem = only(text)
    assert "did you mean resources?" in problem.message
    assert problem.source.strip() == "resorces: 1"


def test_every_error_is_told_in_the_order_of_the_file() -> None:
    text = "port: 0\nname: x\napp: 'a b'\nport: 2\nclient: 1x\n"
    assert [problem.line for problem in check_text(text).errors] == [3, 4, 5]


def test_an_excerpt_has_a_caret_below_what_is_meant() -> None:
    assert only("name: x\nport: 99999 # high\n").excerpt() == [
        "2 | port: 99999 # high",
        "  |       ^^^^^",
    ]


def test_an_excerpt_of_a_long_line_is_cut_around_what_is_meant() -> None:
    line, carets = only(f"{{name: x, description: {'y' * 500}, port: 0, author: z}}").excerpt()
    assert len(line) < 120
    assert line[carets.index("^")] == "0"


# ------------------------------------------------------------------ what was made to hurt


def test_aliases_that_would_blow_up_are_refused() -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    assert "every alias" in only("\n".join(["a0: &a0 [x]", *levels])).message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: &a [*a]", "contains itself"),
        (f"a: {'[' * 200}{']' * 200}", "nested too deeply"),
        (f"a: {'[' * 120_000}", "nested too deeply"),
        ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("a: \x01", "U+0001"),
        ("a: 2024-99-99", "month"),
        ("? [a]\n: b", "unhashable"),
        ("a: 1\n---\nb: 2", "another document"),
        ("- a", "must hold a mapping, not list"),
        ("", "must hold a mapping, and is empty"),
    ],
)
def test_what_is_no_manifest_is_one_error_with_a_place(text: str, says: str) -> None:
    problem = only(text)
    assert says in problem.message and problem.line >= 1


def test_a_name_that_stands_twice_is_an_error_with_both_lines() -> None:
    problem = only("name: x\nvariables:\n  A: a\n  B: b\n  A: c\n")
    assert (problem.line, problem.path) == (5, "variables.A") and "line 3" in problem.message


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"name: x\nport: \xff\xfe", "line 2, column 7: it is not UTF-8: byte 14 is 0xff"),
        (b"#" * (MAX_BYTES + 1), "larger than 128 KiB"),
        ("name: x\n".encode("utf-16"), "it is not UTF-8"),
    ],
)
def test_what_is_no_text_is_refused(data: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(data)
    with pytest.raises(ManifestError, match="cannot be read") as caught:
        read_manifest(tmp_path)
    assert says in str(caught.value)
    assert len(check_manifest(tmp_path / MANIFEST).errors) == 1


def test_a_file_of_windows_is_read(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(b"\xef\xbb\xbfname: x\r\nport: 0\r\n")
    assert read_manifest(tmp_path) == {"name": "x", "port": 0}
    assert check_manifest(tmp_path / MANIFEST).errors[0].source == "port: 0"


def test_a_newer_form_than_is_known_is_refused_by_everybody(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("name: x\nspec_version: 2\n")
    with pytest.raises(ManifestError, match=r"2 is newer than 1.*pip install -U openenv"):
        read_manifest(tmp_path)
    assert check_manifest(tmp_path / MANIFEST).errors[0].line == 2


# ------------------------------------------------------------------ the newest form


def test_an_old_manifest_is_written_anew_with_its_comments() -> None:
    old = "# About\nname: x  # short\nversion: 0.10\nvariables:\n  N: 3  # three\n"
    new, changes = migrate_manifest(old)
    assert new == (
        "# About\nspec_version: 1\nname: x  # short\n"
        'version: "0.10"\nvariables:\n  N: "3"  # three\n'
    )
    assert len(changes) == 3
    assert migrate_manifest(new) == (new, [])


@pytest.mark.parametrize("old", ["{name: x}", "---\nname: x\n", "name: x\nspec_version: '1.0'\n"])
def test_every_style_of_yaml_can_be_brought_up_to_date(old: str) -> None:
    new, changes = migrate_manifest(old)
    assert changes and yaml.safe_load(new) == {"name": "x", "spec_version": 1}


# ------------------------------------------------------------------ the schema


def test_the_schema_is_one_of_2020_12_and_takes_our_manifests() -> None:
    schema = manifest_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for directory in ENVIRONMENTS:
        validator.validate(read_manifest(directory))


@pytest.mark.parametrize(
    "wrong", [{}, {"name": "x", "port": 0}, {"name": "x", "validation": {"resorces": 1}}]
)
def test_the_schema_refuses_what_is_wrong(wrong: dict[str, Any]) -> None:
    assert list(jsonschema.Draft202012Validator(manifest_schema()).iter_errors(wrong))


def test_the_published_schema_is_that_of_the_model() -> None:
    published = (ROOT / "docs" / "schema" / "openenv.schema.json").read_text(encoding="utf-8")
    assert json.loads(published) == manifest_schema(), "write it anew: make docs"


def test_every_field_is_explained() -> None:
    for model in (Manifest, ValidationSection):
        for name, field in model.model_fields.items():
            about = field.description or getattr(field.annotation, "__doc__", None)
            assert about, name


# ------------------------------------------------------------------ the commands


@pytest.mark.slow
def test_validate_shows_each_error_with_its_line_and_a_caret(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("name: x\nport: 99999\nnotes: y\napp: 'a b'\n")
    done = run_openenv("validate", "--level", "static", "--skip-build", ".", cwd=tmp_path)
    assert done.returncode == 1
    assert "openenv.yaml:2:7: port: " in done.stdout
    assert "2 | port: 99999\n            |       ^^^^^" in done.stdout
    assert "openenv.yaml:4:6: app: 'a b' does not fit" in done.stdout
    assert "warning: openenv.yaml:3:1: notes: is not a field" in done.stdout
    told = run_openenv("validate", "--level", "static", "--skip-build", "--json", ".", cwd=tmp_path)
    (result,) = (
        r for r in json.loads(told.stdout)["results"] if r["check_id"] == "static.manifest"
    )
    assert [one["line"] for one in result["measured"]["problems"]] == [2, 4]
    assert [one["line"] for one in result["measured"]["warnings"]] == [3]


@pytest.mark.slow
def test_validate_shows_where_a_number_stands_that_the_policy_does_not_allow(
    tmp_path: Path,
) -> None:
    section = {**_section(), "reward": {"floor_margin": 0.01}}
    (tmp_path / MANIFEST).write_text(yaml.safe_dump({"name": "x", "validation": section}))
    done = run_openenv("validate", "--level", "static", "--skip-build", ".", cwd=tmp_path)
    assert "validation.reward.floor_margin is 0.01; policy v1 allows at least 0.1" in done.stdout
    assert "floor_margin: 0.01\n" in done.stdout and "^^^^" in done.stdout


@pytest.mark.slow
def test_migrate_writes_the_file_and_check_only_looks(tmp_path: Path) -> None:
    path = tmp_path / MANIFEST
    path.write_text("name: x # mine\n")
    assert run_openenv("manifest", "migrate", "--check", ".", cwd=tmp_path).returncode == 1
    assert path.read_text() == "name: x # mine\n"
    done = run_openenv("manifest", "migrate", "--json", ".", cwd=tmp_path)
    assert json.loads(done.stdout)["changes"] == ["added spec_version: 1"]
    assert path.read_text() == "spec_version: 1\nname: x # mine\n"
    assert run_openenv("manifest", "migrate", "--check", ".", cwd=tmp_path).returncode == 0
    assert [entry.name for entry in tmp_path.iterdir()] == [MANIFEST]


@pytest.mark.slow
def test_migrate_says_what_it_cannot_do(tmp_path: Path) -> None:
    done = run_openenv("manifest", "migrate", ".", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "") and "has no openenv.yaml" in done.stderr
    (tmp_path / MANIFEST).write_text("name: [")
    done = run_openenv("manifest", "migrate", ".", cwd=tmp_path)
    assert done.returncode == 1 and "hint: " in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_schema_is_printed_without_a_network(tmp_path: Path) -> None:
    assert json.loads(run_openenv("manifest", "schema", cwd=tmp_path).stdout) == manifest_schema()


def _section() -> dict[str, Any]:
    return {
        "reward": {"floor_margin": 0.5},
        "resources": {"cpu": 1, "memory_mb": 64, "disk_mb": 64, "episode_timeout_s": 60},
        "capabilities": {"verifier": {"kind": "reward_channel"}},
        "types": {"tags": ["toy"]},
    }
