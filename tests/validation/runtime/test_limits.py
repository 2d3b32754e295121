"""What was found of a subject from inside, with one thing changed at a time."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from validation.subjects.threads import GOOD

from openenv.validation.load_tests import (
    Latencies,
    LoadReport,
    MemoryReport,
    _resident_by_process,
    nearest_rank,
    resident_bytes,
)
from openenv.validation.manifest import AnyManifest, NetworkPolicy
from openenv.validation.parsers.openenv_yaml import OpenEnvYamlParser
from openenv.validation.report import Judgment
from openenv.validation.runtime.confinement import PROGRAM
from openenv.validation.runtime.evidence import Confinement
from openenv.validation.runtime.limits import (
    judge_host_containment,
    judge_latency,
    judge_memory,
    judge_network_policy,
    judge_resource_bounds,
)
from openenv.validation.types import CheckStatus

PASS, FAIL, SKIP = CheckStatus.PASS, CheckStatus.FAIL, CheckStatus.SKIP

# As it is in a container of ours: the engine mounts its own three files, and nothing else.
CONFINED: dict[str, Any] = {
    "uid": 1000,
    "capabilities": 0,
    "no_new_privileges": True,
    "writable": [],
    "sockets": [],
    "mounts": [
        ["/", "/", "overlay"],
        ["/proc", "/", "proc"],
        ["/tmp", "/", "tmpfs"],
        ["/etc/hosts", "/var/lib/containers/hosts", "ext4"],
    ],
    "memory_bytes": 4096 * 2**20,
    "processes": 512,
    "cpu": 2.0,
    "interfaces": ["lo"],
    "has_default_route": False,
    "reached": [],
    "allowed_reached": [],
}

JUDGES = {
    "runtime.network_policy": judge_network_policy,
    "runtime.host_containment": judge_host_containment,
    "runtime.resource_bounds": judge_resource_bounds,
}


def manifest(mode: Any = "no-network", hosts: tuple[str, ...] = ()) -> AnyManifest:
    declared = OpenEnvYamlParser().parse(GOOD)
    network = NetworkPolicy(mode=mode, allowed_hosts=list(hosts))
    return declared.model_copy(update={"network": network})


def results(changes: dict[str, Any]) -> dict[str, Judgment]:
    confinement = Confinement({}, {**CONFINED, **changes})
    return {name: judge(manifest(), confinement) for name, judge in JUDGES.items()}


def test_what_is_confined_passes() -> None:
    assert {result.status for result in results({}).values()} == {PASS}


@pytest.mark.parametrize(
    ("check_id", "changes"),
    [
        ("runtime.network_policy", {"reached": ["1.1.1.1"]}),
        ("runtime.network_policy", {"has_default_route": True, "interfaces": ["lo", "eth0"]}),
        ("runtime.host_containment", {"capabilities": 1 << 21}),
        ("runtime.host_containment", {"no_new_privileges": False}),
        ("runtime.host_containment", {"writable": ["/etc"]}),
        ("runtime.host_containment", {"sockets": ["/var/run/docker.sock"]}),
        ("runtime.host_containment", {"mounts": [["/data", "/home/somebody", "ext4"]]}),
        ("runtime.resource_bounds", {"memory_bytes": None}),
        ("runtime.resource_bounds", {"memory_bytes": 8192 * 2**20}),
        ("runtime.resource_bounds", {"processes": None}),
        ("runtime.resource_bounds", {"cpu": None}),
        ("runtime.resource_bounds", {"cpu": 8.0}),
    ],
)
def test_one_opening_is_caught_by_its_check_alone(check_id: str, changes: dict[str, Any]) -> None:
    found = results(changes)
    assert found.pop(check_id).status is FAIL
    assert {result.status for result in found.values()} == {PASS}


@pytest.mark.parametrize(
    ("mode", "changes", "expected"),
    [
        ("public", {"has_default_route": True}, PASS),
        ("public", {}, FAIL),
        ("allowlist", {"allowed_reached": ["example.com"]}, PASS),
        ("allowlist", {"allowed_reached": ["example.com"], "reached": ["8.8.8.8"]}, FAIL),
        ("allowlist", {}, SKIP),
    ],
)
def test_a_network_is_as_it_is_declared(
    mode: str, changes: dict[str, Any], expected: CheckStatus
) -> None:
    declared = manifest(mode, ("example.com",) if mode == "allowlist" else ())
    confinement = Confinement({}, {**CONFINED, **changes})
    assert judge_network_policy(declared, confinement).status is expected


def test_what_the_provider_mounts_itself_is_no_opening() -> None:
    mounts = [*CONFINED["mounts"], ["/run/openenv", "/tmp/told", "ext4"]]
    for told, expected in (({}, FAIL), ({"own_mounts": ["/run/openenv"]}, PASS)):
        confinement = Confinement(told, {**CONFINED, "mounts": mounts})
        result = judge_host_containment(manifest(), confinement)
        assert result.status is expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"memory.max": "536870912", "pids.max": "512", "cpu.max": "150000 100000"},
            (536870912, 512, 1.5),
        ),
        ({"memory.max": "max", "pids.max": "max", "cpu.max": "max 100000"}, (None, None, None)),
        (
            {
                "memory/memory.limit_in_bytes": "536870912",
                "pids/pids.max": "512",
                "cpu/cpu.cfs_quota_us": "150000",
                "cpu/cpu.cfs_period_us": "100000",
            },
            (536870912, 512, 1.5),
        ),
        (
            {
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "pids/pids.max": "max",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            (None, None, None),
        ),
        ({}, (None, None, None)),
    ],
    ids=["version 2", "version 2, no limits", "version 1", "version 1, no limits", "none"],
)
def test_the_program_that_looks_reads_control_groups(
    files: dict[str, str], expected: tuple[Any, ...], tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    limits = runpy.run_path(str(PROGRAM))["limits"](str(tmp_path))
    assert (limits["memory_bytes"], limits["processes"], limits["cpu"]) == expected


def test_what_could_not_be_looked_at_is_skipped() -> None:
    nothing = Confinement({}, None, "the probe could not be run")
    statuses = {judge(manifest(), nothing).status for name, judge in JUDGES.items()}
    assert statuses == {SKIP}


def inside(*before: str) -> dict[str, Any]:
    told = json.dumps([0.1, [], []])
    command = [*before, sys.executable, str(PROGRAM), told]
    done = subprocess.run(command, capture_output=True, timeout=30, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_program_that_looks_finds_all_that_is_judged() -> None:
    assert inside().keys() == CONFINED.keys()


@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare")
def test_the_program_sees_that_there_is_no_network() -> None:
    try:
        found = inside("unshare", "--map-root-user", "--net")
    except subprocess.CalledProcessError:
        pytest.skip("no namespaces can be made here")
    assert found["interfaces"] == ["lo"]
    assert not found["has_default_route"]


# ------------------------------------------------------------------ load

QUICK = Latencies(100, 0, 1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (LoadReport(QUICK, QUICK, 8), PASS),
        (LoadReport(replace(QUICK, p99_ms=6_000.0), QUICK, 8), FAIL),
        (LoadReport(QUICK, replace(QUICK, p95_ms=400.0), 8), FAIL),
        (LoadReport(QUICK, replace(QUICK, failed=90), 8), FAIL),
        (LoadReport(QUICK, Latencies(0, 5, 0.0, 0.0, 0.0), 8), FAIL),
        (LoadReport(Latencies(0, 0, 0.0, 0.0, 0.0), QUICK, 8), SKIP),
    ],
)
def test_latency_is_judged_alone_and_under_load(load: LoadReport, expected: CheckStatus) -> None:
    assert judge_latency(manifest(), load).status is expected


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(i) for i in range(1, 101)]
    assert [nearest_rank(values, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert nearest_rank([7.0], 0.99) == 7.0


MIB = 2**20
EPISODES = (0, 20, 40, 60, 80, 100, 120)


@pytest.mark.parametrize(
    ("resident_mb", "expected"),
    [
        ((70, 70, 70, 70, 70, 70, 70), PASS),
        ((70, 75, 80, 85, 90, 95, 100), FAIL),
        ((70, 95, 100, 100, 100, 100, 100), PASS),  # it warmed up, and then stayed
        ((70, 70.5, 71, 71.5, 72, 72.5, 73), PASS),  # too little to tell
        ((100, 90, 80, 75, 72, 71, 70), PASS),
    ],
)
def test_a_leak_is_growth_that_does_not_end(
    resident_mb: tuple[float, ...], expected: CheckStatus
) -> None:
    memory = MemoryReport(EPISODES, tuple(int(one * MIB) for one in resident_mb))
    assert judge_memory(manifest(), memory).status is expected


def test_memory_that_could_not_be_read_is_no_memory_that_stays() -> None:
    for memory in (MemoryReport((0,), (MIB,)), MemoryReport(EPISODES, (0,) * 7)):
        assert judge_memory(manifest(), memory).status is SKIP


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ((3, 8, 13, 18, 23, 28, 33), FAIL),
        ((6, 12, 13, 6, 12, 7, 13), PASS),  # they come and go
        ((3, 4, 5, 6, 7, 8, 9), PASS),  # a pool that fills up
    ],
)
def test_processes_that_are_left_behind_are_told(
    processes: tuple[int, ...], expected: CheckStatus
) -> None:
    memory = MemoryReport(EPISODES, (70 * MIB,) * 7, processes)
    assert judge_memory(manifest(), memory).status is expected


def test_only_what_stays_is_held_against_a_server() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in _resident_by_process(os.getpid())
        assert resident_bytes(os.getpid()) == pytest.approx(
            sum(_resident_by_process(os.getpid()).values()), rel=0.2
        )
        assert child.stdin is not None
        child.stdin.close()
    assert child.pid not in _resident_by_process(os.getpid())
