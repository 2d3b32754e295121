"""What is told of a long command where there is no terminal."""

from __future__ import annotations

import threading

import pytest

from openenv.cli import _progress
from openenv.cli._progress import display


def test_a_phase_in_which_nothing_is_new_is_told_of_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    enough = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        if len(said) >= 2:
            enough.set()

    monkeypatch.setattr(_progress, "REMIND_EVERY_S", 0.05)
    monkeypatch.setattr(_progress, "say", say)
    before = threading.active_count()
    with display() as shown:
        shown.begin("validating", 10)
        shown.update(3, "static.sbom")  # a build, say, which takes minutes
        assert enough.wait(10)
        shown.finish("10 checks")
    assert said[0].startswith("validating: 3 of 10, static.sbom, ")
    assert said[0].endswith(" s so far")
    assert said[-1].startswith("validating: 10 checks, ")
    assert threading.active_count() == before


def test_what_is_quick_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(_progress, "say", said.append)
    with display() as shown:
        shown.begin("reporting")
        shown.update(1, "a")
        shown.finish("done")
    (line,) = said
    assert line.startswith("reporting: done, ")
