"""The confinement probe: what stands between a subject and the machine, seen from inside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openenv._internal.json import read_json
from openenv.errors import OpenEnvError
from openenv.validation.manifest import NetworkPolicy
from openenv.validation.providers import RunningSubject
from openenv.validation.runtime.evidence import Confinement

__all__ = ["PROGRAM", "probe_confinement"]

LOOK_S = 40.0
CONNECT_S = 2.0
# Addresses that accept connections from nearly everywhere; nothing is sent to them.
PUBLIC_PLACES = [["1.1.1.1", 443], ["8.8.8.8", 53]]

PROGRAM = Path(__file__).parents[1] / "programs" / "confinement_probe.py"


def probe_confinement(
    subject: RunningSubject, inspected: Mapping[str, Any], network: NetworkPolicy
) -> Confinement:
    """Run the probe inside a subject and return the findings."""
    hosts = [[host, 443] for host in network.allowed_hosts if not set(host) & set("*/")]
    program = PROGRAM.read_text(encoding="utf-8")
    told = json.dumps([CONNECT_S, PUBLIC_PLACES, hosts])
    for python in ("python3", "python"):
        try:
            done = subject.exec([python, "-c", program, told], LOOK_S)
        except OpenEnvError as error:
            return Confinement(inspected, trouble=f"the probe could not be run inside: {error}")
        if done.exit_code == 0:
            return Confinement(inspected, read_json(done.stdout))
    return Confinement(inspected, trouble=f"the probe failed inside: {done.stderr:.300}")
