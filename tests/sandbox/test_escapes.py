"""Every way out of a sandbox is closed; and where one is open, `check_sandbox` says so."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.amounts import mostly_extended

from openenv.sandbox import Guarantee, Sandbox, SandboxPolicy
from openenv.sandbox.kinds import INSIDE, PYTHON, Place, settings_of, spawn
from openenv.sandbox.policy import MIB
from openenv.testing.escapes import ESCAPES, Attempt, Escape, check_sandbox

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sandbox-escapes.md"
# Attempts on processes and output go on until their time is over.
QUICK = {escape.kind for escape in ESCAPES} - {"processes", "output"}
AFTER = list(dict.fromkeys(escape.kind for escape in ESCAPES))

Make = Callable[[SandboxPolicy], Sandbox]


@pytest.mark.slow("some attempts go on until a limit ends them")
@pytest.mark.timeout(300)  # some attempts go on until their time is over
@pytest.mark.parametrize("after", mostly_extended(AFTER, QUICK))
@pytest.mark.parametrize("kind", mostly_extended(["bubblewrap", "landlock"]))
def test_no_way_leads_out(kind: str, after: str) -> None:
    chosen = [escape for escape in ESCAPES if escape.kind == after]
    report = check_sandbox(partial(Sandbox, require="process", kind=kind), chosen)
    assert report.kind == kind
    assert [attempt.escape for attempt in report.attempts] == chosen
    assert {attempt.escape.name: attempt.breaches for attempt in report.escaped} == {}


def test_the_page_has_every_way_out() -> None:
    text = PAGE.read_text("utf-8")
    assert [escape.name for escape in ESCAPES if f"\n| {escape.name} | " not in text] == []
    for kind in ("bubblewrap", "landlock"):
        (row,) = (line for line in text.splitlines() if line.startswith(f"| {kind} | "))
        assert row.endswith(f"| {len(ESCAPES)} of {len(ESCAPES)} |")


# ------------------------------------------------------------------ that it can fail


class Leaky:
    """A place that shows all files of the machine and shares its network.

    Its processes are its own all the same, and nothing can be written but in the directory for
    temporary files: what these tests run in it cannot harm the machine.
    """

    name = "leaky"
    guarantee = Guarantee.PROCESS

    def why_not(self) -> str | None:
        return None

    def start(self, policy: SandboxPolicy) -> Place:
        home = tempfile.mkdtemp(prefix="openenv-leaky-")
        options = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        options += ["--bind", tempfile.gettempdir(), tempfile.gettempdir()]
        options += ["--unshare-pid", "--as-pid-1", "--die-with-parent", "--cap-drop", "ALL"]
        options += ["--chdir", home]
        guest = [PYTHON, "-I", "-S", str(INSIDE / "guest.py"), settings_of(policy, None)]
        process, _ = spawn(["bwrap", *options, "--", *guest])
        release = partial(shutil.rmtree, home, ignore_errors=True)
        return Place(process, home, str(INSIDE), PYTHON, release=[release])


# Of these none ends a process, or takes much of anything.
OPEN = {
    "read a file of the machine": "it has read the secret file",
    "read it by a symbolic link": "it has read the secret file",
    "read it by many parents": "it has read the secret file",
    "read it by the root of its own process": "it has read the secret file",
    "find a way out by __subclasses__": "it has read the secret file",
    "list the machine's directory for temporary files": "it says: ESCAPED",
    "write a file of the machine": "it has changed a file of the machine",
    "reach a port of the machine": "it has reached a port of the machine",
    "reach an abstract socket of the machine": "it has reached a port of the machine",
}


@pytest.mark.slow
def test_a_sandbox_that_leaks_is_found_out() -> None:
    chosen = [escape for escape in ESCAPES if escape.name in OPEN]
    assert len(chosen) == len(OPEN)
    told: list[Attempt] = []
    report = check_sandbox(lambda policy: Sandbox.of_kind(Leaky(), policy), chosen, told.append)
    assert report.kind == "leaky"
    assert report.attempts == report.escaped == told
    assert {one.escape.name: one.breaches for one in told} == {
        name: (breach,) for name, breach in OPEN.items()
    }


@pytest.fixture
def generous() -> Make:
    """A good sandbox with limits of its own, above those that it is asked for."""

    def make(policy: SandboxPolicy) -> Sandbox:
        more = dataclasses.replace(policy, memory_bytes=1024 * MIB, output_bytes=2 * MIB)
        return Sandbox(more, kind="bubblewrap")

    return make


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "code", "breach"),
    [
        ("memory", "import time; held = b'x' * 600 * 2**20; time.sleep(0.5)", "MiB of memory"),
        ("output", "print('x' * 2**20)", "it has printed"),
        ("files", "import os; os.path.exists(SECRET); print('ESCAPED')", "it says: ESCAPED"),
    ],
)
def test_what_is_taken_is_measured(generous: Make, after: str, code: str, breach: str) -> None:
    (attempt,) = check_sandbox(generous, [Escape("take much", after, code)]).escaped
    assert [breach in one for one in attempt.breaches] == [True]


def test_the_check_leaves_nothing_behind(
    generous: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = check_sandbox(generous, [Escape("do nothing", "files", "print(len(SECRET))")])
    assert [attempt.outcome for attempt in report.attempts] == ["exit code 0"]
    assert report.escaped == []
    assert os.listdir(tmp_path) == []
