"""Bills of materials: the lists of packages in an image.

The format is CycloneDX 1.5, as JSON (https://cyclonedx.org/docs/1.5/json).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

NAMESPACE = uuid.UUID("6a3a8d5e-6c0b-5d0e-9b7f-0b1f6a0e4c11")

# Runs in the image and prints JSON: Python's version, its distributions, Debian's packages.
READER = """
import json, platform, re
from importlib import metadata

def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()

def license_of(about):
    told = about.get("License-Expression") or about.get("License") or ""
    if told and len(told) < 100:
        return told
    named = [one.rpartition(" :: ")[2] for one in about.get_all("Classifier") or ()
             if one.startswith("License ::")]
    return " AND ".join(named)

found = {}
for one in metadata.distributions():
    about = one.metadata
    if about["Name"]:
        found.setdefault(normal(about["Name"]), {
            "name": normal(about["Name"]),
            "version": about["Version"],
            "summary": about.get("Summary") or "",
            "license": license_of(about),
            "is_expression": bool(about.get("License-Expression")),
        })

system, packages = {}, []
try:
    for line in open("/etc/os-release"):
        name, _, value = line.strip().partition("=")
        system[name] = value.strip('"')
    for block in open("/var/lib/dpkg/status", errors="replace").read().split("\\n\\n"):
        fields = dict(re.findall(r"^(\\S+): (.*)", block, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            packages.append([fields["Package"], fields["Version"], fields.get("Architecture", "")])
except OSError:
    pass
print(json.dumps({
    "python": platform.python_version(), "system": system,
    "distributions": [found[name] for name in sorted(found)], "packages": sorted(packages),
}))
"""


def render_bill_of_materials(
    found: Mapping[str, Any], *, name: str, version: str, epoch_s: int, tool_version: str
) -> bytes:
    """Render the output of `READER` as a bill of materials; deterministic for an image.

    Args:
        found: The output of `READER`.
        name: Name of the image.
        version: Version of the image.
        epoch_s: Creation time of the image, in seconds since 1970.
        tool_version: Version of this package.
    """
    python = found["python"]
    components = [_component("platform", "python", python, f"pkg:generic/python@{python}")]
    components += [_distribution(one) for one in found["distributions"]]
    components += [_package(*one, system=found["system"]) for one in found["packages"]]
    listed = json.dumps(components, sort_keys=True)
    time = datetime.fromtimestamp(epoch_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    whole = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, name + listed)}",
        "version": 1,
        "metadata": {
            "timestamp": time,
            "tools": {
                "components": [{"type": "application", "name": "openenv", "version": tool_version}]
            },
            "component": {
                "type": "container",
                "bom-ref": "image",
                "name": name,
                "version": version or "0",
            },
        },
        "components": components,
    }
    return (json.dumps(whole, indent=2) + "\n").encode()


def _distribution(one: Mapping[str, Any]) -> dict[str, Any]:
    purl = f"pkg:pypi/{quote(one['name'])}@{quote(one['version'])}"
    component = _component("library", one["name"], one["version"], purl)
    if one["summary"]:
        component["description"] = one["summary"]
    if one["license"]:
        is_expression = one["is_expression"]
        license = one["license"]
        component["licenses"] = [
            {"expression": license} if is_expression else {"license": {"name": license}}
        ]
    return component


def _package(
    name: str, version: str, architecture: str, *, system: Mapping[str, str]
) -> dict[str, Any]:
    vendor = system.get("ID", "debian")
    of = f"{vendor}-{system['VERSION_ID']}" if "VERSION_ID" in system else vendor
    purl = f"pkg:deb/{vendor}/{quote(name)}@{quote(version)}?arch={architecture}&distro={of}"
    return _component("library", name, version, purl)


def _component(kind: str, name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
