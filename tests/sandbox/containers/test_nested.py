"""A sandbox within a container that is itself confined, by Podman; see scripts/containers."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess

import pytest
from support.commands import ENVIRONMENTS

pytestmark = [pytest.mark.containers, pytest.mark.timeout(120)]

ROOT = ENVIRONMENTS.parent
IMAGE = "localhost/openenv-test:latest"
PACKAGES = "/opt/venv/lib/python3.11/site-packages"
CONFINED = ["--network=none", "--cap-drop=all", "--security-opt=no-new-privileges", "--read-only"]
PROGRAM = """\
import json
from openenv.sandbox import Sandbox

with Sandbox(require="namespaces", kind="bubblewrap") as sandbox:
    found = sandbox.run(["sh", "-c", "ls -d /proc; touch /x; exec 3<>/dev/ptmx && echo a terminal"])
    late = sandbox.run(["sleep", "100"], wall_s=0.3)
    print(json.dumps([found.stdout, found.stderr, late.timed_out, sandbox.run(["true"]).exit_code]))
"""


def test_it_has_namespaces_of_its_own_and_no_proc() -> None:
    bwrap, seccomp = shutil.which("bwrap"), importlib.util.find_spec("pyseccomp")
    assert bwrap is not None and seccomp is not None and seccomp.origin is not None
    added = {
        bwrap: "/usr/bin/bwrap",
        seccomp.origin: f"{PACKAGES}/pyseccomp.py",
        str(ROOT / "src" / "openenv"): f"{PACKAGES}/openenv",
    }
    mounts = [f"--volume={path}:{place}:ro" for path, place in added.items()]
    told = ROOT / ".containers" / "containers.conf"
    command = ["podman", "run", "--rm", "--interactive", "--tmpfs=/tmp", "--user=1000:1000"]
    command += [*CONFINED, *mounts, "--entrypoint=python", IMAGE, "-"]
    done = subprocess.run(
        command,
        input=PROGRAM,
        env={**os.environ, **({"CONTAINERS_CONF": str(told)} if told.exists() else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    stdout, stderr, timed_out, exit_code = json.loads(done.stdout)
    assert stdout == "a terminal\n"
    assert "'/proc': No such file" in stderr and "'/x': Read-only file system" in stderr
    assert (timed_out, exit_code) == (True, 0)
