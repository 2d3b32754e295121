"""What engines are asked for, and what is taken out of what they make."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from support.memory import MIB, kept_below

from openenv.images.engines import (
    ENGINES,
    TEXT_BYTES,
    BuildOptions,
    BuildRequest,
    _read_archive,
    _sealed,
    find_builder,
)
from openenv.images.errors import BuildError


def request_for(**options: object) -> BuildRequest:
    return BuildRequest(
        Path("/c"),
        Path("/d"),
        7,
        {"B": "2", "A": "1"},
        {"l": "x"},
        ["base"],
        BuildOptions(**options),  # type: ignore[arg-type]
    )


def test_podman_is_told_of_times_mounts_and_where_bases_come_from() -> None:
    asked = request_for(
        platform="linux/arm64", network="host", volumes=["/a:/b:ro"], no_cache=True, offline=True
    )
    options = ENGINES["podman"]._options(asked)
    assert options == ENGINES["buildah"]._options(asked)
    assert " ".join(options) == (
        "--build-arg A=1 --build-arg B=2 --label l=x --platform linux/arm64 --network host "
        "--no-cache --format docker --timestamp 7 --layers --pull=never --volume /a:/b:ro"
    )


def test_certificates_are_mounted_where_the_system_has_them(tmp_path: Path) -> None:
    options = ENGINES["podman"]._options(request_for(ca_file=tmp_path / "ca.pem"))
    assert f"{tmp_path}/ca.pem:/etc/ssl/certs/ca-certificates.crt:ro" in options


def test_docker_refuses_what_it_has_not() -> None:
    with pytest.raises(BuildError, match="docker build has no mounts"):
        ENGINES["docker"]._check(request_for(volumes=["/a:/b"]))
    with pytest.raises(BuildError, match="without TLS only if its daemon"):
        ENGINES["docker"].push("localhost:1/x", tls=False)


def test_an_engine_that_is_not_there_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        BuildError, match=r"docker is not installed; podman is not .*; buildah"
    ) as e:
        find_builder()
    assert "apt-get install podman" in str(e.value.hint)
    with pytest.raises(BuildError, match="no engine can build an image here: podman is not"):
        find_builder("podman")


def test_what_is_by_chance_is_taken_out_of_an_image() -> None:
    def made(chance: str) -> dict[str, object]:
        return {
            "created": chance,
            "container": chance,
            "container_config": {"Hostname": chance},
            "parent": chance,
            "architecture": "amd64",
            "os": "linux",
            "config": {"Hostname": chance, "User": "1000", "Labels": {"b": "1"}, "Cmd": ["x"]},
            "history": [{"created": chance, "created_by": "RUN a", "comment": f"FROM {chance}"}],
            "rootfs": {"type": "layers", "diff_ids": ["sha256:0"]},
        }

    first = _sealed(made("one"), 1_700_000_000, {"a": "2"})
    assert first == _sealed(made("two"), 1_700_000_000, {"a": "2"})
    assert json.loads(first) == {
        "architecture": "amd64",
        "os": "linux",
        "created": "2023-11-14T22:13:20Z",
        "config": {"User": "1000", "Labels": {"a": "2", "b": "1"}, "Cmd": ["x"]},
        "history": [{"created": "2023-11-14T22:13:20Z", "created_by": "RUN a"}],
        "rootfs": {"type": "layers", "diff_ids": ["sha256:0"]},
    }


def test_of_an_image_only_small_files_are_read() -> None:
    """A layer is not, of which the size is all that is wanted."""

    def archive(**files: int) -> io.BytesIO:
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w|") as tar:
            for name, size in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = size
                tar.addfile(entry, io.BytesIO(bytes(size)))
        written.seek(0)
        return written

    large = archive(manifest=10, layer=TEXT_BYTES, config=TEXT_BYTES - 1, much=32 * MIB)
    with kept_below(16 * MIB):
        texts, sizes = _read_archive(large)
    assert texts.keys() == {"manifest", "config"} and len(texts["config"]) == TEXT_BYTES - 1
    assert sizes["layer"] == TEXT_BYTES and sizes["much"] == 32 * MIB
    assert _read_archive(archive(manifest=3))[0] == {"manifest": bytes(3)}
