"""Looking from inside a subject at what stands between it and the machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openenv._internal.json import read_json
from openenv.errors import OpenEnvError
from openenv.validation.manifest import NetworkPolicy
from openenv.validation.providers import RunningSubject
from openenv.validation.runtime.seen import Confinement

__all__ = ["PROGRAM", "look_inside"]

LOOK_S = 40.0
CONNECT_S = 2.0
# Addresses that answer to nearly everybody, asked for nothing: does a connection come about?
PUBLIC_PLACES = [["1.1.1.1", 443], ["8.8.8.8", 53]]

PROGRAM = Path(__file__).parents[1] / "programs" / "inside.py"


def look_inside(
    subject: RunningSubject, inspected: Mapping[str, Any], network: NetworkPolicy
) -> Confinement:
    """Run the probe inside a subject, and read what it found."""
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
