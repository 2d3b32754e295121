"""Whose a container is, by its label."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from openenv.providers.owners import is_orphan, own_name, pid_of


def test_what_a_living_process_holds_is_no_orphan() -> None:
    assert not is_orphan(own_name())
    assert pid_of(own_name()) == str(os.getpid())


def test_what_a_process_that_has_ended_held_is_one() -> None:
    program = "from openenv.providers.owners import own_name; print(own_name())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert is_orphan(done.stdout.strip())


def test_a_number_that_was_given_again_is_another_process() -> None:
    machine, boot, pid, began = own_name().split("/")
    assert is_orphan(f"{machine}/{boot}/{pid}/{int(began) - 1}")


def test_what_was_held_before_the_machine_was_started_anew_is_one() -> None:
    machine, boot, pid, began = own_name().split("/")
    earlier = "0" * 36 + "-" + boot.rpartition("-")[2]
    assert is_orphan(f"{machine}/{earlier}/{pid}/{began}")


@pytest.mark.parametrize("part", ["machine", "namespace"])
def test_what_nobody_here_can_tell_is_none(part: str) -> None:
    machine, boot, _, began = own_name().split("/")
    if part == "machine":
        machine = "another"
    else:
        boot = boot.rpartition("-")[0] + "-1"
    assert not is_orphan(f"{machine}/{boot}/999999999/{began}")


@pytest.mark.parametrize("name", ["", "shared", "a/b/c", "a/b/c/d/e", "a/b/no number/1"])
def test_a_label_of_somebody_else_is_none(name: str) -> None:
    assert not is_orphan(name)
