"""Command-line drivers of the programs that build images: Docker, Podman, Buildah.

A build needs features that only the command lines have: times (``--timestamp``), mounts, and the
users' own registry logins. Docker's SDK has none of them and does not speak BuildKit.

Invariants: a build has no name until it is finished; an interrupted build removes what it created
(see `_end`); `seal` rewrites an image's configuration without the times and container names that
vary between builds, so equal layers give an equal id. Podman and Buildah share one image store and
one set of build options.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, ClassVar

from openenv.images.context import scratch_directory
from openenv.images.errors import LAST_LINES, BuildError, EngineError
from openenv.providers.owners import stat_fields

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
ANSWER_S = 60.0
END_S = 10.0
TEXT_BYTES = 2**20
MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
LAYER_TYPE = "application/vnd.docker.image.rootfs.diff.tar"

_STEP = re.compile(
    r"^(?:\[\d+/\d+\] )?(?:STEP|Step) (\d+)/(\d+) ?: (.*)$|^#\d+ \[.*?(\d+)/(\d+)\] (.*)$"
)
_NOISE = re.compile(
    r"healthchecks: dial unix|^--> |^Error: (error )?(building at|executing)|^DEPRECATED|"
    r"Install the buildx|https://docs.docker.com/go/buildx|^\s*$"
)
_NO_BASE = re.compile(
    r"pull access denied|manifest unknown|initializing source docker|short-name .* did not resolve|"
    r"failed to resolve source metadata|pinging container registry|image not known|"
    r"No such image|Get \"?https?://[^ ]*/v2/",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class BuildOptions:
    """Options of a build.

    Attributes:
        platform: Target platform such as ``linux/arm64``; None for the engine's own.
        network: Network of the build steps; None for the engine's default.
        volumes: Mounts for the build steps, as ``FROM:TO[:ro]``.
        ca_file: CA certificates (PEM) that replace the system's during the build steps.
        no_cache: Run every step, without the build cache.
        offline: Do not fetch base images.
    """

    platform: str | None = None
    network: str | None = None
    volumes: Sequence[str] = ()
    ca_file: Path | None = None
    no_cache: bool = False
    offline: bool = False


@dataclass(frozen=True)
class BuildRequest:
    """A build for an engine to run.

    Attributes:
        context: Directory of the build context.
        dockerfile: Path of the Dockerfile.
        epoch_s: Time of every file in the image, in seconds since 1970.
        arguments: Build arguments.
        labels: Labels for the image.
        bases: Base images.
        options: Options of the build.
    """

    context: Path
    dockerfile: Path
    epoch_s: int
    arguments: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    bases: Sequence[str] = ()
    options: BuildOptions = BuildOptions()


@dataclass(frozen=True)
class EngineImage:
    """An image in an engine's store.

    Attributes:
        id: Digest of the configuration, which names the layers: equal images have equal ids.
        size_bytes: Size of all layers, uncompressed.
        user: The user that runs the image's program.
        layers: Digests of the layers.
    """

    id: str
    size_bytes: int
    user: str
    layers: tuple[str, ...]


class Engine(ABC):
    """A program that builds and stores images."""

    program: ClassVar[str]
    has_daemon: ClassVar[bool] = False
    version_options: ClassVar[Sequence[str]] = ()
    archive_options: ClassVar[Sequence[str]] = ()
    name_format: ClassVar[str] = "{{.Repository}}:{{.Tag}}"

    def why_not(self) -> str | None:
        """Return the reason why this machine cannot use the engine; None if it can."""
        if shutil.which(self.program) is None:
            return "is not installed"
        try:
            self._call("version", *self.version_options)
        except BuildError as error:
            return f"does not answer: {error.log.splitlines()[-1] if error.log else error}"
        return None

    # ------------------------------------------------------------------ building

    def build(self, request: BuildRequest, on_step: Callable[[int, int, str], None]) -> str:
        """Build an image without a name and return the id.

        Args:
            request: The build to run.
            on_step: Called as each step begins, with its number, the number of steps, and its text.

        Raises:
            BuildError: The build failed; the message names the step and has its last lines.
        """
        self._check(request)
        told = request.context.parent / "image-id"
        command = [self.program, "build", *self._options(request), "--iidfile", str(told)]
        command += ["--file", str(request.dockerfile), str(request.context)]
        _follow(command, request, on_step, self.has_daemon)
        return _bare(told.read_text().strip())

    def _check(self, request: BuildRequest) -> None:
        if request.options.offline:
            for base in request.bases:
                if not self.has(base):
                    raise BuildError(
                        f"the base image {base} is not on this machine, and --offline fetches none",
                        hint=f"{self.program} pull {base}, or choose another: --base IMAGE",
                    )

    def _options(self, request: BuildRequest) -> list[str]:
        options = []
        for name, value in sorted(request.arguments.items()):
            options += ["--build-arg", f"{name}={value}"]
        for name, value in sorted(request.labels.items()):
            options += ["--label", f"{name}={value}"]
        if request.options.platform is not None:
            options += ["--platform", request.options.platform]
        if request.options.network is not None:
            options += ["--network", request.options.network]
        if request.options.no_cache:
            options.append("--no-cache")
        return options

    # ------------------------------------------------------------------ the image store

    def has(self, image: str) -> bool:
        """Return whether the store holds an image."""
        return self._succeeds("image", "inspect", image)

    def inspect(self, image: str) -> EngineImage:
        """Inspect an image."""
        (seen,) = json.loads(self._call("image", "inspect", image))
        return EngineImage(
            _bare(seen["Id"]),
            int(seen.get("Size") or 0),
            (seen.get("Config") or {}).get("User") or seen.get("User") or "",
            tuple((seen.get("RootFS") or {}).get("Layers") or ()),
        )

    def is_reproducible(self) -> bool:
        """Return whether the engine gives an image's files the requested time."""
        return True

    def seal(self, image: str, epoch_s: int, labels: Mapping[str, str]) -> str:
        """Remove times and container names that vary between builds from an image's configuration.

        Args:
            image: The image's id.
            epoch_s: The creation time to set, in seconds since 1970.
            labels: Additional labels.

        Returns:
            The id of the resulting image, which has the same layers.
        """
        config, layers = self._saved(image)
        return self._import(_sealed(config, epoch_s, labels), layers)

    @abstractmethod
    def _import(self, config: bytes, layers: Sequence[tuple[str, int]]) -> str:
        """Create an image of a configuration and of layers in the store; return the image's id."""

    def _saved(self, image: str) -> tuple[dict[str, Any], list[tuple[str, int]]]:
        """Return an image's configuration, and the paths and sizes of the archived layers."""
        with subprocess.Popen(  # nosec B603  # no shell; an engine
            [self.program, "save", *self.archive_options, image],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as saving:
            assert saving.stdout is not None
            try:
                texts, sizes = _read_archive(saving.stdout)
            except tarfile.TarError as error:
                raise BuildError(f"{self.program} could not read {image}: {error}") from error
        manifest = json.loads(texts["manifest.json"])[0]
        layers = [(path, sizes.get(path, 0)) for path in manifest["Layers"]]
        return json.loads(texts[manifest["Config"]]), layers

    def run_python(self, image: str, code: str) -> str:
        """Run Python code in an image without network, and return its standard output.

        Raises:
            BuildError: The code failed, for example because the image has no Python.
            EngineError: The code took longer than 60 s.
        """
        command = ["run", "--rm", "--interactive", "--network", "none", "--no-healthcheck"]
        command += ["--entrypoint", "/bin/sh", image, "-c", _PYTHON]
        return self._call(*command, told=code, failure=BuildError)

    def names(self) -> list[str]:
        """Return the names of all images in the store."""
        names = self._call("images", "--format", self.name_format).splitlines()
        return [name for name in names if "<none>" not in name]

    def tag(self, image: str, name: str) -> None:
        """Give an image a name."""
        self._call("tag", image, name)

    def untag(self, name: str) -> None:
        """Remove a name; an image without another name is removed too.

        Raises:
            EngineError: No image has the name, or a container uses the image.
        """
        self._call("rmi", name, timeout_s=None)

    def push(self, name: str, *, tls: bool = True) -> None:
        """Push an image to the registry in the name, with the user's login.

        Raises:
            BuildError: The registry refuses the image.
        """
        try:
            self._call("push", *(() if tls else ("--tls-verify=false",)), name, timeout_s=None)
        except BuildError as error:
            registry = name.partition("/")[0]
            lines = [one for one in error.log.splitlines() if not one.startswith("Copying ")]
            hint = f"{self.program} login {registry}, if it requires a login"
            if "HTTP response to HTTPS client" in error.log:
                hint = "it speaks plain HTTP; pass --push-without-tls to allow that"
            raise BuildError(
                f"{registry} did not take the image {name}", hint=hint, log=lines[-3:]
            ) from None

    def _succeeds(self, *command: str) -> bool:
        try:
            self._call(*command)
        except BuildError:
            return False
        return True

    def _call(
        self,
        *command: str,
        timeout_s: float | None = ANSWER_S,
        told: str = "",
        failure: type[BuildError] = EngineError,
    ) -> str:
        try:
            done = subprocess.run(  # nosec B603  # no shell; an engine
                [self.program, *command],
                input=told,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            raise EngineError(
                f"{self.program} {command[0]} took longer than {timeout_s:g} s"
            ) from None
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if not _NOISE.search(line)]
            raise failure(f"{self.program} {command[0]} failed", log=lines)
        return done.stdout


# ------------------------------------------------------------------ Docker


class DockerEngine(Engine):
    """The ``docker`` program, with BuildKit if installed."""

    program = "docker"
    has_daemon = True
    version_options = ("--format", "{{.Server.Version}}")

    def _check(self, request: BuildRequest) -> None:
        super()._check(request)
        if request.options.volumes:
            raise BuildError(
                "docker build has no mounts, so --volume cannot be used",
                hint="podman and buildah have them: --engine podman",
            )

    def _options(self, request: BuildRequest) -> list[str]:
        options = super()._options(request)
        if self.is_reproducible():
            options += ["--provenance=false", "--output", "type=docker,rewrite-timestamp=true"]
            options += ["--progress", "plain"]
        return options

    def is_reproducible(self) -> bool:
        return self._succeeds("buildx", "version")

    def push(self, name: str, *, tls: bool = True) -> None:
        if not tls:
            raise BuildError(
                "docker accepts a registry without TLS only if its daemon is configured for it",
                hint='{"insecure-registries": ["HOST:PORT"]} in /etc/docker/daemon.json',
            )
        super().push(name)

    def _import(self, config: bytes, layers: Sequence[tuple[str, int]]) -> str:
        name = f"{hashlib.sha256(config).hexdigest()}.json"
        manifest = [{"Config": name, "RepoTags": None, "Layers": [path for path, _ in layers]}]
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for path, data in ((name, config), ("manifest.json", json.dumps(manifest).encode())):
                entry = tarfile.TarInfo(path)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        done = subprocess.run(  # nosec B603  # no shell; an engine
            [self.program, "load", "--quiet"], input=archive.getvalue(), capture_output=True
        )
        if done.returncode:
            words = done.stderr.decode(errors="replace").splitlines()
            raise BuildError("the image could not be given its labels", log=words)
        return name.removesuffix(".json")


# ------------------------------------------------------------------ Podman, Buildah


class PodmanEngine(Engine):
    """The ``podman`` program."""

    program = "podman"
    archive_options = ("--quiet", "--format", "docker-archive")

    def _options(self, request: BuildRequest) -> list[str]:
        options = [*super()._options(request), "--format", "docker"]
        options += ["--timestamp", str(request.epoch_s), "--layers"]
        options.append("--pull=never" if request.options.offline else "--pull=false")
        for volume in request.options.volumes:
            options += ["--volume", volume]
        if request.options.ca_file is not None:
            options += ["--volume", f"{request.options.ca_file.resolve()}:{CERTIFICATES}:ro"]
        return options

    def _import(self, config: bytes, layers: Sequence[tuple[str, int]]) -> str:
        digest = hashlib.sha256(config).hexdigest()
        digests = json.loads(config)["rootfs"]["diff_ids"]
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": CONFIG_TYPE, "size": len(config), "digest": f"sha256:{digest}"},
            "layers": [
                {"mediaType": LAYER_TYPE, "size": size, "digest": layer}
                for (_, size), layer in zip(layers, digests, strict=True)
            ],
        }
        with scratch_directory() as directory:  # without the layers, which the store has
            folder = directory / "image"
            folder.mkdir()
            (folder / digest).write_bytes(config)
            (folder / "manifest.json").write_text(json.dumps(manifest))
            (folder / "version").write_text("Directory Transport Version: 1.1\n")
            return _bare(self._call("pull", "--quiet", f"dir:{folder}").split()[-1])


class BuildahEngine(PodmanEngine):
    """The ``buildah`` program, which shares Podman's image store."""

    program = "buildah"
    name_format = "{{.Name}}:{{.Tag}}"

    def has(self, image: str) -> bool:
        return self._succeeds("inspect", "--type", "image", image)

    def inspect(self, image: str) -> EngineImage:
        seen = json.loads(self._call("inspect", "--type", "image", image))
        config = seen["Docker"]
        rows = json.loads(self._call("images", "--json", "--no-trunc", "--all"))
        size = next(
            (_bytes(row["size"]) for row in rows if _bare(row["id"]) == seen["FromImageID"]), 0
        )
        return EngineImage(
            seen["FromImageID"],
            size,
            config["config"].get("User") or "",
            tuple(config["rootfs"]["diff_ids"]),
        )

    def _saved(self, image: str) -> tuple[dict[str, Any], list[tuple[str, int]]]:
        with scratch_directory() as directory:
            self._call("push", "--quiet", "--format", "v2s2", image, f"dir:{directory}/image")
            manifest = json.loads((directory / "image" / "manifest.json").read_text())
            config = (directory / "image" / _bare(manifest["config"]["digest"])).read_text()
        return json.loads(config), [(one["digest"], one["size"]) for one in manifest["layers"]]

    def run_python(self, image: str, code: str) -> str:
        container = self._call("from", "--pull-never", image).strip()
        try:
            command = ["run", "--network", "none", container, "--", "/bin/sh", "-c", _PYTHON]
            return self._call(*command, told=code, failure=BuildError)
        finally:
            self._call("rm", container)


ENGINES: dict[str, Engine] = {
    one.program: one for one in (DockerEngine(), PodmanEngine(), BuildahEngine())
}


def find_builder(name: str | None = None) -> Engine:
    """Return the named engine, or the first usable engine of Docker, Podman and Buildah.

    Raises:
        BuildError: No engine is usable.
    """
    candidates = list(ENGINES.values()) if name is None else [ENGINES[name]]
    reasons = []
    for engine in candidates:
        why_not = engine.why_not()
        if why_not is None:
            return engine
        reasons.append(f"{engine.program} {why_not}")
    raise BuildError(
        f"no engine can build an image here: {'; '.join(reasons)}",
        hint="install Docker (https://docs.docker.com/engine/install) or Podman (apt-get install "
        "podman), or pass --print to see what would be built",
    )


# ------------------------------------------------------------------ following a build


def _follow(
    command: Sequence[str],
    request: BuildRequest,
    on_step: Callable[[int, int, str], None],
    has_daemon: bool,
) -> None:
    """Run a build to the end; on an interrupt, end the build without leftovers."""
    step, lines = "", deque[str](maxlen=LAST_LINES)
    with subprocess.Popen(  # nosec B603  # no shell; an engine
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as building:
        assert building.stdout is not None
        try:
            for line in map(str.rstrip, building.stdout):
                if found := _STEP.match(line):
                    number, of, step = (part for part in found.groups() if part is not None)
                    lines.clear()
                    on_step(int(number), int(of), step)
                elif not _NOISE.search(line):
                    lines.append(line)
            code = building.wait()
        except BaseException:
            _end(building, has_daemon=has_daemon)
            raise
    if code:
        raise _failure(step, list(lines), request, code)


def _failure(step: str, lines: list[str], request: BuildRequest, code: int) -> BuildError:
    if code < 0:
        return EngineError(f"the build was ended by {signal.Signals(-code).name}", log=lines)
    if any("no space left on device" in line.lower() for line in lines):
        return EngineError(
            "no disk space is left for the build",
            hint="`df -h` shows where; an engine's own store can be emptied by `podman system "
            "prune`, or `docker system prune`",
            log=lines,
        )
    base = next((one for one in request.bases if f"FROM {one}" in step), None)
    if (base or not step) and any(_NO_BASE.search(line) for line in lines):
        name = base or ", ".join(request.bases)
        return BuildError(
            f"the base image {name} is not available",
            hint="choose one that this machine has, or can reach: --base IMAGE",
            log=lines[-3:],
        )
    text, hint = "\n".join(lines), None
    if re.search("CERTIFICATE_VERIFY_FAILED|self.signed certificate|unknown authority", text):
        hint = "the build does not know who signs the index's certificate: --ca-file FILE"
    elif re.search(
        "name resolution|Could not resolve|Network is unreachable|NewConnectionError", text
    ):
        hint = "the build reaches no network: --network host, or wheels of your own: --wheels"
    return BuildError(
        f"the build failed at: {step}" if step else "the build failed before its first step",
        hint=hint,
        log=lines,
    )


def _end(process: subprocess.Popen[str], *, has_daemon: bool) -> None:
    """End a build so that the engine removes unfinished containers.

    Podman and Buildah leave their containers behind if a signal ends them, but not if a step fails.
    So the processes in the container are killed, which makes the step fail.
    """
    deadline = time.monotonic() + (0 if has_daemon else END_S)
    while process.poll() is None and time.monotonic() < deadline:
        for pid in _inside(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
            return
        os.killpg(process.pid, signal.SIGKILL)


def _inside(engine: int) -> list[int]:
    """Return the container processes of an engine: descendants in separate sessions."""
    parents, sessions = {}, {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with suppress(OSError):
            _, parent, _, session, *_ = stat_fields(pid)
            parents[pid], sessions[pid] = int(parent), int(session)
    found = []
    for pid in parents:
        above = pid
        while above in parents and above != engine:
            above = parents[above]
        if above == engine and sessions[pid] != sessions[engine]:
            found.append(pid)
    return found


# ------------------------------------------------------------------ image archives


_PYTHON = 'exec "$(command -v python || command -v python3)" -I -'


_OF_IMAGE = ("architecture", "os", "variant", "rootfs")
_OF_HISTORY = ("created_by", "empty_layer")
_OF_CONTAINER = ("Hostname", "Domainname", "Image")


def _sealed(config: dict[str, Any], epoch_s: int, labels: Mapping[str, str]) -> bytes:
    """Return an image's configuration as canonical JSON, without values that vary by build."""
    time = datetime.fromtimestamp(epoch_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    kept = {key: config[key] for key in _OF_IMAGE if key in config}
    own = {
        key: value for key, value in config.get("config", {}).items() if key not in _OF_CONTAINER
    }
    own["Labels"] = dict(sorted({**(own.get("Labels") or {}), **labels}.items()))
    history = [
        {"created": time, **{key: one[key] for key in _OF_HISTORY if key in one}}
        for one in config.get("history", [])
    ]
    whole = {**kept, "config": own, "created": time, "history": history}
    return json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()


def _read_archive(stream: IO[bytes]) -> tuple[dict[str, bytes], dict[str, int]]:
    """Return the small files of an image archive, and the sizes of all files."""
    texts: dict[str, bytes] = {}
    sizes: dict[str, int] = {}
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for entry in tar:
            sizes[entry.name] = entry.size
            if entry.isfile() and entry.size < TEXT_BYTES:
                file = tar.extractfile(entry)
                assert file is not None
                texts[entry.name] = file.read()
    while stream.read(1 << 20):
        pass
    return texts, sizes


def _bare(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _bytes(text: str) -> int:
    number, _, unit = text.partition(" ")
    units: dict[str, float] = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9}
    return int(float(number) * units[unit.upper()])
