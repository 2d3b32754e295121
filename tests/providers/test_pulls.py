"""What an engine says while it fetches an image; the streams are those of real engines."""

from __future__ import annotations

from typing import Any

import pytest

from openenv.errors import ProviderError
from openenv.providers._pulls import Layers, fetch
from openenv.providers.docker import _parts

# Of Podman 4.3: the third layer took over a second.
PODMAN: list[dict[str, Any]] = [
    {"status": "Already exists", "progressDetail": {}, "id": "1a0100f045d7"},
    {"status": "Pulling fs layer", "progressDetail": {}, "id": "99f01301dc29"},
    {"status": "Download complete", "progressDetail": {}, "id": "99f01301dc29"},
    {"status": "Pulling fs layer", "progressDetail": {}, "id": "f55d3fd50c23"},
    {
        "status": "Downloading",
        "progressDetail": {"current": 100728832, "total": 150014564},
        "progress": "[====>   ]  100.7MB/150MB",
        "id": "f55d3fd50c23",
    },
    {"status": "Download complete", "progressDetail": {}, "id": "f55d3fd50c23"},
]

# Of Docker 20.10, where a layer is unpacked after it came.
DOCKER: list[dict[str, Any]] = [
    {"status": "Pulling from me/big", "id": "1"},
    {"status": "Pulling fs layer", "progressDetail": {}, "id": "f55d3fd50c23"},
    {"status": "Waiting", "progressDetail": {}, "id": "f55d3fd50c23"},
    {
        "status": "Downloading",
        "progressDetail": {"current": 552960, "total": 150014564},
        "progress": "[>     ]    553kB/150MB",
        "id": "f55d3fd50c23",
    },
    {"status": "Verifying Checksum", "progressDetail": {}, "id": "f55d3fd50c23"},
    {"status": "Download complete", "progressDetail": {}, "id": "f55d3fd50c23"},
    {
        "status": "Extracting",
        "progressDetail": {"current": 557056, "total": 150014564},
        "progress": "[>     ]  557.1kB/150MB",
        "id": "f55d3fd50c23",
    },
    {"status": "Pull complete", "progressDetail": {}, "id": "f55d3fd50c23"},
    {"status": "Digest: sha256:36491fe1"},
    {"status": "Status: Downloaded newer image for 127.0.0.1:5055/me/big:1"},
]


def seen(steps: list[dict[str, Any]]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    layers = Layers()
    shown = []
    for step in steps:
        layers.note(step)
        shown.append((layers.count, layers.sizes))
    return shown


def test_layers_of_podman() -> None:
    size = 150014564
    assert seen(PODMAN) == [
        ((1, 1), (0, 0)),
        ((1, 2), (0, 0)),
        ((2, 2), (0, 0)),
        ((2, 3), (0, 0)),
        ((2, 3), (100728832, size)),
        ((3, 3), (size, size)),
    ]


def test_layers_of_docker() -> None:
    size = 150014564
    shown = seen(DOCKER)
    assert shown[:4] == [
        ((0, 0), (0, 0)),
        ((0, 1), (0, 0)),
        ((0, 1), (0, 0)),
        ((0, 1), (552960, size)),
    ]
    assert set(shown[4:]) == {((1, 1), (size, size))}, "it is here, also while it is unpacked"


def test_lines_are_told_as_they_come() -> None:
    lines: list[str] = []
    fetch("far:1", iter(PODMAN[3:]), lines.append)
    assert lines == [
        "f55d3fd50c23 Pulling fs layer",
        "f55d3fd50c23 Downloading [====>   ]  100.7MB/150MB",
        "f55d3fd50c23 Download complete",
    ]


def test_what_an_engine_cannot_fetch_is_an_error() -> None:
    steps = [{"status": "Pulling fs layer", "id": "a"}, {"error": "no space left on device"}]
    with pytest.raises(ProviderError, match="far:1 could not be fetched: no space left on device"):
        fetch("far:1", iter(steps), False)


def test_a_bar_is_left_where_it_ended(capfd: pytest.CaptureFixture[str]) -> None:
    fetch("far:1", iter(PODMAN), True)
    told = capfd.readouterr().err
    assert "fetching far:1" in told and "3 of 3 layers, 150.0 MB of 150.0 MB" in told


@pytest.mark.parametrize(
    ("image", "name", "tag"),
    [
        ("echo", "echo", "latest"),
        ("echo:2", "echo", "2"),
        ("127.0.0.1:5000/team/echo", "127.0.0.1:5000/team/echo", "latest"),
        ("127.0.0.1:5000/team/echo:2", "127.0.0.1:5000/team/echo", "2"),
        ("registry.example/echo@sha256:0a1b", "registry.example/echo", "sha256:0a1b"),
    ],
)
def test_a_reference_is_taken_apart(image: str, name: str, tag: str) -> None:
    assert _parts(image) == (name, tag)
