"""Reading Dockerfiles; and ours, which are all of one form."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.commands import ENVIRONMENTS

from openenv._internal.dockerfile import ParsedDockerfile
from openenv.cli._template import EnvironmentNames, render

OURS = render(EnvironmentNames.of("my_game_env"))["server/Dockerfile"]


def of(text: str) -> ParsedDockerfile:
    return ParsedDockerfile(text, "a test")


def test_its_arguments_are_found() -> None:
    assert of("ARG A\nARG B=1 C=2\nFROM x\nARG A").arguments() == {"A": None, "B": "1", "C": "2"}


def test_what_it_does_not_know_is_found() -> None:
    given = {"A": "1", "Z": "1", "HTTPS_PROXY": "x", "SOURCE_DATE_EPOCH": "1"}
    assert of("ARG A\nFROM x").undeclared(given) == ["Z"]


@pytest.mark.parametrize(
    ("text", "given", "bases"),
    [
        ("FROM python:3.12", {}, ["python:3.12"]),
        ("ARG BASE=a\nFROM $BASE AS one\nFROM ${BASE}\nCOPY --from=one / /", {}, ["a"]),
        ("ARG BASE=a\nFROM $BASE", {"BASE": "b"}, ["b"]),
        ("FROM ${X:-c} AS one\nFROM one\nFROM scratch", {}, ["c"]),
        ("FROM --platform=linux/amd64 \\\n  d AS e", {}, ["d"]),
        ("from f as Stage\nfrom stage", {}, ["f"]),
    ],
)
def test_its_bases_are_found(text: str, given: dict[str, str], bases: list[str]) -> None:
    assert of(text).bases(given) == bases


def test_ours_installs_what_is_locked_from_a_base_that_can_be_chosen() -> None:
    assert of(OURS).is_locked
    assert of(OURS).bases({}) == ["python:3.12-slim"]
    assert not of("FROM x\nRUN pip install .").is_locked


@pytest.mark.parametrize("path", sorted(ENVIRONMENTS.glob("*/server/Dockerfile")), ids=str)
def test_those_of_our_environments_differ_in_what_they_need_only(path: Path) -> None:
    package = path.parts[-3]
    theirs = path.read_text().replace(package, "my_game_env")
    theirs = re.sub(r"(docker build -t )\S+", r"\1my-game-env:latest", theirs)
    missing = [line for line in OURS.splitlines() if line not in theirs]
    assert [line for line in missing if not line.lstrip().startswith(("else", "ENV PATH"))] == []
    assert "USER 1000:1000" in theirs


def test_its_stages_are_found_with_the_lines_of_their_instructions() -> None:
    text = "ARG A\n# one\nFROM x AS Build\nRUN a \\\n    # not this\n  b\n\nFROM build\nUSER 1\n"
    build, last = of(text).stages
    assert (build.name, build.base) == ("build", "x")
    assert [(one.name, one.text, one.line) for one in build.instructions] == [("RUN", "a b", 4)]
    assert [(one.name, one.text, one.line) for one in last.instructions] == [("USER", "1", 9)]


@pytest.mark.parametrize(
    ("text", "final"),
    [
        ("FROM x AS a\nRUN 1\nFROM y AS b\nRUN 2\nFROM a\nRUN 3", ["1", "3"]),
        ("FROM x AS x\nRUN 1", ["1"]),
        ("FROM x AS a\nRUN 1\nFROM y", []),
        ("", []),
    ],
)
def test_what_its_image_is_made_by_is_the_last_stage_and_those_below(
    text: str, final: list[str]
) -> None:
    assert [one.text for one in of(text).final] == final


def test_the_commands_of_a_here_document_are_a_run_s_and_no_instructions() -> None:
    text = "FROM x\nRUN <<EOF\napt-get install \\\n  gcc\nUSER root\nEOF\nUSER 2\n"
    run, user = of(text).stages[0].instructions
    assert run.text == "<<EOF ; apt-get install gcc ; USER root ; EOF"
    assert (user.name, user.text, user.line) == ("USER", "2", 7)
