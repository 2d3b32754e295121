"""The bill of materials: what is installed here, as a reader of the format takes it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest

from openenv.images.sbom import READER, render_bill_of_materials


@pytest.fixture(scope="module")
def found() -> Any:
    done = subprocess.run(
        [sys.executable, "-I", "-"], input=READER, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def bill(found: Any) -> bytes:
    return render_bill_of_materials(
        found, name="x:latest", version="1", epoch_s=0, tool_version="2"
    )


def test_it_lists_what_is_installed(found: Any) -> None:
    listed = {
        one["name"]: one["version"]
        for one in json.loads(bill(found))["components"]
        if one["purl"].startswith("pkg:pypi/")
    }
    for name in ("pydantic", "pytest", "typing-extensions"):
        assert listed[name] == metadata.version(name)


def test_it_is_the_same_for_the_same_and_another_for_another(found: Any) -> None:
    assert bill(found) == bill(found)
    other = {**found, "distributions": found["distributions"][1:]}
    assert json.loads(bill(other))["serialNumber"] != json.loads(bill(found))["serialNumber"]


@pytest.mark.slow
def test_it_is_what_readers_of_cyclonedx_take(found: Any) -> None:
    model = pytest.importorskip("cyclonedx.model.bom")
    data = json.loads(bill(found))
    read = model.Bom.from_json(data)
    assert len(read.components) == len(data["components"])
    assert read.metadata.component.name == "x:latest"
    assert len({one["bom-ref"] for one in data["components"]}) == len(data["components"])


def test_packages_of_the_system_are_named_with_it() -> None:
    found = {
        "python": "3.11.2",
        "system": {"ID": "debian", "VERSION_ID": "12"},
        "distributions": [],
        "packages": [["libc6", "2.36-9+deb12u1", "amd64"]],
    }
    (_, libc) = json.loads(bill(found))["components"]
    assert libc["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64&distro=debian-12"
