"""Judges of confinement, secrecy, latency and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from openenv.validation.load_tests import LoadReport, MemoryReport
from openenv.validation.manifest import AnyManifest
from openenv.validation.report import QUOTED_FAULTS, Judgment, accept, conclude, reject, skip
from openenv.validation.runtime.confinement import Exposure
from openenv.validation.runtime.evidence import Confinement

MIB = 2**20
UNSEEN = "it was not looked at from inside"

MAX_STEP_ALONE_MS = 5_000.0
"""Maximum 99th percentile of a step's latency in a single session, in milliseconds."""

SLOWER_UNDER_LOAD = 4.0  # maximum latency as a multiple of that of fully serialized sessions

LEAK_PER_EPISODE = 16 * 1024
LEAK_BYTES = 4 * MIB

# Linux capabilities (capability.h) that break a container's isolation.
DANGEROUS = {
    1: "DAC_OVERRIDE",
    12: "NET_ADMIN",
    13: "NET_RAW",
    16: "SYS_MODULE",
    17: "SYS_RAWIO",
    19: "SYS_PTRACE",
    21: "SYS_ADMIN",
    27: "MKNOD",
}
# Mounts that every engine makes, and types of file systems without files of the machine.
OWN_MOUNTS = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/.containerenv")
VIRTUAL = {"overlay", "tmpfs", "proc", "sysfs", "devpts", "mqueue", "cgroup", "cgroup2", "devtmpfs"}


def judge_network_policy(manifest: AnyManifest, confinement: Confinement) -> Judgment:
    """Check that the subject's network access matches the declared policy."""
    inside = confinement.inside
    if inside is None:
        return skip(confinement.trouble or UNSEEN)
    mode, reached = manifest.network.mode, list(inside["reached"])
    is_connected = bool(reached) or bool(inside["has_default_route"])
    measured = {"mode": mode, "reached": reached, "interfaces": inside["interfaces"]}
    if mode == "no-network" and is_connected:
        found = f"it reached {reached}" if reached else "it has a route to everywhere"
        return reject(
            f"declared is no-network, and {found}",
            remediation="start it without a network (network=none)",
            **measured,
        )
    if mode == "public" and not is_connected:
        return reject(
            "declared is public, and it has no way out",
            remediation="declare validation.network.mode: no-network",
            **measured,
        )
    if mode == "allowlist":
        if reached:
            return reject(
                f"it reached {', '.join(reached)}, which allowed_hosts does not list",
                remediation="start it behind a network that lets only allowed_hosts through",
                **measured,
            )
        if not inside["allowed_reached"]:
            return skip("no allowed host could be reached from here either")
    return accept(f"its network is {mode}", **measured)


def judge_host_containment(manifest: AnyManifest, confinement: Confinement) -> Judgment:
    """Check that the subject has no rights over the machine and no access to its files."""
    if confinement.inside is None:
        return skip(confinement.trouble or UNSEEN)
    told = confinement.inspected.get("own_mounts", ())
    wrong = list(_openings(confinement.inside, (*OWN_MOUNTS, *told)))
    if wrong:
        return reject(
            *wrong[:QUOTED_FAULTS],
            remediation="start it without capabilities and mounts, with no-new-privileges and a "
            "read-only root (openenv.providers.LocalDockerProvider does)",
        )
    return accept("no rights, no mounts, a read-only root", uid=confinement.inside["uid"])


def _openings(inside: Mapping[str, Any], own_mounts: Sequence[str]) -> Iterator[str]:
    held = [name for bit, name in DANGEROUS.items() if inside["capabilities"] >> bit & 1]
    if held:
        yield f"it holds the capabilities {', '.join(held)}"
    if not inside["no_new_privileges"]:
        yield "it can gain privileges: no-new-privileges is off"
    if inside["sockets"]:
        yield f"it sees an engine's socket: {', '.join(inside['sockets'])}"
    if inside["writable"]:
        yield f"it can write to {', '.join(inside['writable'])}"
    for place, root, kind in inside["mounts"]:
        if kind not in VIRTUAL and root != "/" and place not in own_mounts:
            yield f"a directory of the machine is mounted at {place}"


def judge_resource_bounds(manifest: AnyManifest, confinement: Confinement) -> Judgment:
    """Check that the limits in force match the declaration."""
    inside = confinement.inside
    if inside is None:
        return skip(confinement.trouble or UNSEEN)
    wrong = []
    declared = manifest.resources
    memory, cores, processes = (inside[name] for name in ("memory_bytes", "cpu", "processes"))
    if memory is None or memory > declared.memory_mb * MIB:
        in_force = "no limit" if memory is None else f"{memory / MIB:.0f} MB"
        wrong.append(f"memory: declared are {declared.memory_mb} MB, in force {in_force}")
    if cores is None or cores > declared.cpu * 1.01:
        wrong.append(f"cpu: declared are {declared.cpu:g}, in force {cores or 'no limit'}")
    if processes is None:
        wrong.append("processes: there is no limit to how many it starts")
    measured = {"memory_bytes": memory, "cpu": cores, "processes": processes}
    cure = "start it with these limits (memory, cpus and pids of the container)"
    return conclude(wrong, cure, **measured)


def judge_oracle_containment(manifest: AnyManifest, exposure: Exposure) -> Judgment:
    """Check that privileged files and solutions are out of an agent's reach."""
    wrong = [
        f"{name} goes into the image, since it is in the context of its build"
        for name in exposure.in_context
    ]
    wrong += [f"the server gives {path} to any client" for path in exposure.served]
    wrong += [f"{where} tells the solution: {words!r:.80}" for where, words in exposure.told]
    if wrong:
        return reject(
            *wrong[:QUOTED_FAULTS],
            remediation="name privileged files in .dockerignore (a line such as validation/), and "
            "mark what tasks are scored by as Private",
        )
    if exposure.no_context is not None:
        return skip(f"what goes into the image cannot be told: {exposure.no_context}")
    if not exposure.files:
        return accept("the package has no privileged files")
    return accept(f"withheld: {', '.join(exposure.files)}")


def judge_latency(manifest: AnyManifest, load: LoadReport) -> Judgment:
    """Check that steps are fast alone and answered under load, without blocking each other."""
    alone, loaded = load.alone, load.loaded
    measured: dict[str, Any] = {
        "sessions": load.sessions,
        "alone": alone.percentiles,
        "under_load": loaded.percentiles,
        "steps": [alone.steps, loaded.steps],
    }
    wrong = []
    if load.lost is not None:
        return reject(
            f"with up to {load.sessions} sessions one broke off: {load.lost}",
            remediation="see in the server's log why it ended, or what it waits for",
            **measured,
        )
    if not alone.steps:
        return skip("no step was answered, so there is nothing to time", **measured)
    if alone.p99_ms > MAX_STEP_ALONE_MS:
        wrong.append(f"alone, one step in a hundred takes {alone.p99_ms:.0f} ms or more")
    if not loaded.steps or loaded.failed * alone.steps > (alone.failed + 1) * loaded.steps * 2:
        wrong.append(
            f"with {load.sessions} sessions {loaded.failed} steps of "
            f"{loaded.steps + loaded.failed} were not answered"
        )
    queue_ms = alone.p95_ms * load.sessions * SLOWER_UNDER_LOAD + 250
    if loaded.p95_ms > queue_ms:
        wrong.append(
            f"with {load.sessions} sessions one step in twenty takes {loaded.p95_ms:.0f} ms, "
            f"alone {alone.p95_ms:.1f} ms: more than if they waited for each other"
        )
    return conclude(
        wrong,
        "move what is slow out of step, or declare what may run on which thread "
        "(SUPPORTS_ANY_THREAD, NEVER_BLOCKS); serve it with workers",
        f"p50 {alone.p50_ms:.2f} ms alone, {loaded.p50_ms:.2f} ms with {load.sessions} sessions",
        **measured,
    )


def judge_memory(manifest: AnyManifest, memory: MemoryReport) -> Judgment:
    """Check that the server's memory and processes do not grow with the number of episodes."""
    measured: dict[str, Any] = {
        "episodes": list(memory.episodes),
        "resident_mb": [round(one / MIB, 2) for one in memory.resident_bytes],
        "bytes_an_episode": round(memory.bytes_an_episode),
        "processes": list(memory.processes),
    }
    if memory.lost is not None:
        return reject(
            f"after {memory.episodes[-1]} episodes and more a session broke off: {memory.lost}",
            remediation="see in the server's log why it ended, or what it waits for",
            **measured,
        )
    if len(memory.episodes) < 3 or not memory.peak_bytes:
        return skip("there was no time for enough episodes, or no way to read", **measured)
    if memory.leaves_processes:
        return reject(
            f"it leaves processes behind: {memory.processes[0]} at first, and "
            f"{memory.processes[-1]} after {memory.episodes[-1]} episodes",
            remediation="end in close what was started for an episode",
            **measured,
        )
    is_fast, is_much = memory.bytes_an_episode >= LEAK_PER_EPISODE, memory.grown_bytes >= LEAK_BYTES
    if is_fast and is_much and memory.is_still_growing:
        return reject(
            f"it grew by {memory.grown_bytes / MIB:.1f} MB in {memory.episodes[-1]} episodes, "
            "and goes on growing",
            remediation="let go of an episode in reset and close: no lists or caches on the class "
            "or the module that only grow",
            **measured,
        )
    return accept(f"{memory.bytes_an_episode / 1024:.1f} KiB an episode", **measured)
