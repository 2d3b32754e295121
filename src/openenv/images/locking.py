"""Locks everything that an image installs: our own wheels, and a lock file with hashes.

uv creates both. The lock names every package for every platform, in the form that
``pip install --require-hashes`` reads. It follows the environment's ``uv.lock``; in a workspace,
the ``requirements.lock`` of the environment, or else of the workspace. Without any of these, uv
resolves the packages, and the resulting ``uv.lock`` is kept next to the environment's
``pyproject.toml``.

The OpenEnv that goes into the image is chosen first, since an index may hold another package of the
same name. The first that exists is taken: `LockOptions.openenv`, the workspace, the wheel or
directory in ``[tool.uv.sources]``, the version in ``uv.lock`` if its series is the running one,
and, for a version that no index has, a wheel of the running version.
"""

from __future__ import annotations

import configparser
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from openenv._internal.dockerfile import LOCK, OURS
from openenv._internal.version import version
from openenv.images.context import copy_context
from openenv.images.errors import BuildError
from openenv.images.plan import BuildPlan
from openenv.images.running import (
    LOCKED,
    RUNNING,
    check_locked,
    declared_source,
    is_released,
    write_wheel,
)

OLDEST_PYTHON = "3.10"
UV_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class LockOptions:
    """Sources of packages.

    Attributes:
        openenv: A wheel or source tree of OpenEnv for the image, instead of the workspace's or the
            index's. `RUNNING` stands for the running version, `LOCKED` for that of ``uv.lock``,
            even of another series.
        index_url: The package index; by default that of uv and pip.
        wheels: A directory of wheels that is the only source of packages.
        ca_file: CA certificates (PEM) with which pip verifies the index during the build.
        offline: Let uv use only its cache.
    """

    openenv: Path | None = None
    index_url: str | None = None
    wheels: Path | None = None
    ca_file: Path | None = None
    offline: bool = False


@dataclass(frozen=True)
class LockResult:
    """The outcome of locking.

    Attributes:
        packages: Number of packages in the lock.
        sha256: Digest of the lock.
        held_to: Existing lock file that the new lock follows; None if there was none.
        kept: The ``uv.lock`` that was written for later builds; None if none was written.
    """

    packages: int
    sha256: str
    held_to: Path | None
    kept: Path | None


def write_lock(
    plan: BuildPlan, context: Path, how: LockOptions, say: Callable[[str], None]
) -> LockResult:
    """Write wheels, the lock and pip's configuration into a build context.

    Args:
        plan: The plan of the build.
        context: Directory of the context.
        how: Sources of packages.
        say: Called with a sentence about each step.

    Raises:
        BuildError: uv is not installed or failed, or a source of packages cannot be read.
    """
    return _LockWriter(plan, context, how, say).run()


def openenv_source(
    plan: BuildPlan, how: LockOptions, scratch: Path, say: Callable[[str], None]
) -> Path | None:
    """Choose the OpenEnv that goes into an image.

    Args:
        plan: The plan of the build.
        how: Sources of packages.
        scratch: A directory for a wheel of the running OpenEnv.
        say: Called with a sentence about any choice that may be a surprise.

    Returns:
        A wheel or a checkout; None if ``uv.lock`` or the index decides.

    Raises:
        BuildError: ``uv.lock`` names a version of another series, or the named source does not
            exist.
    """
    if how.openenv == RUNNING:
        return write_wheel(scratch / "openenv")
    if how.openenv is not None:
        return None if how.openenv == LOCKED else how.openenv
    if plan.workspace is not None:
        return plan.workspace
    difference = check_locked(plan.environment)
    if difference is not None:
        say(difference)
    declared = declared_source(plan.environment, plan.project)
    if declared is not None:
        if not declared.exists():
            raise BuildError(
                f"[tool.uv.sources] takes openenv from {declared}, which does not exist",
                hint="--openenv running takes the one that runs",
            )
        return declared
    says_where = how.wheels is not None or how.index_url is not None
    if is_released() or says_where or (plan.environment / "uv.lock").is_file():
        return None
    say(f"openenv {version()} is on no index, so a wheel of it goes into the image")
    return write_wheel(scratch / "openenv")


class _LockWriter:
    def __init__(
        self, plan: BuildPlan, context: Path, how: LockOptions, say: Callable[[str], None]
    ) -> None:
        if not plan.project.get("project"):
            raise BuildError(
                f"{plan.environment} has no pyproject.toml with a [project], so nothing says what "
                "is to be installed"
            )
        self._plan, self._how, self._say = plan, how, say
        uv = shutil.which("uv") or shutil.which("uv", path=os.path.dirname(sys.executable))
        if uv is None:
            raise BuildError(
                "uv is not installed; it locks the packages of an image", hint="pip install uv"
            )
        self._uv = uv
        self._context = context
        self._wheels = context / OURS / "wheels"
        self._scratch = context.parent
        self._copy = self._scratch / "environment"

    def run(self) -> LockResult:
        source = openenv_source(self._plan, self._how, self._scratch, self._say)
        self._wheels.mkdir(parents=True, exist_ok=True)
        copy_context(self._plan.contents_of_environment(), self._copy)
        inputs = [(self._wheel_of(source), "")] if source is not None else []
        limits, held_to, kept = self._limits(is_ours=source is not None)
        inputs.append((self._wheel_of(self._copy), self._plan.extras))
        text = self._compile(inputs, limits)
        (self._context / LOCK).write_text(text)
        self._configure_pip()
        packages = len(re.findall(r"^[\w.-]+==", text, re.MULTILINE)) + len(inputs)
        return LockResult(packages, hashlib.sha256(text.encode()).hexdigest(), held_to, kept)

    def _wheel_of(self, source: Path) -> Path:
        """Put a project's wheel into the context, and return its path; build it if necessary."""
        if source.suffix == ".whl":
            try:
                return Path(shutil.copy(source, self._wheels))
            except OSError as error:
                raise BuildError(f"{source} cannot be read: {error.strerror}") from error
        self._say(f"building the wheel of {self._plan.name if source == self._copy else 'OpenEnv'}")
        before = set(self._wheels.iterdir())
        command = ["build", "--wheel", "--out-dir", str(self._wheels.resolve()), "--quiet"]
        if self._plan.workspace is not None:
            command += ["--build-constraint", str(self._plan.workspace / "requirements.lock")]
        self._run([*command, str(source.resolve())], f"the wheel of {source} could not be built")
        made = {path for path in set(self._wheels.iterdir()) - before if path.suffix == ".whl"}
        if len(made) != 1:
            raise BuildError(f"uv built {len(made)} wheels of {source}, not one")
        for other in self._wheels.glob(".gitignore"):
            other.unlink()
        return made.pop()

    def _limits(self, is_ours: bool) -> tuple[Path | None, Path | None, Path | None]:
        """Return the constraints of the new lock, the file they come from, and the ``uv.lock`` to
        keep.
        """
        if self._plan.workspace is not None:
            own = self._plan.environment / "requirements.lock"
            theirs = own if own.is_file() else self._plan.workspace / own.name
            return theirs, theirs, None
        theirs, kept = self._plan.environment / "uv.lock", None
        if theirs.is_file():
            shutil.copyfile(theirs, self._copy / "uv.lock")
        elif is_ours:  # the index may lack this OpenEnv, so uv could not lock it
            return None, None, None
        else:
            self._say("locking its dependencies with uv")
            self._run(["lock", "--quiet"], "uv could not lock it")
            if self._how.openenv != LOCKED:
                check_locked(self._copy)
            kept = theirs
            try:
                shutil.copyfile(self._copy / "uv.lock", kept)
            except OSError as error:
                self._say(f"uv.lock could not be kept: {kept}: {error.strerror}")
        versions = self._scratch / "versions.txt"
        other = ["--no-emit-package", "openenv"] if is_ours else []
        command = ["export", "--quiet", "--locked", "--no-dev", "--no-emit-project", "--all-extras"]
        command += ["--no-annotate", "--no-header", "--no-hashes", *other, "-o", str(versions)]
        self._run(command, "uv.lock cannot be used", "bring it up to date: uv lock")
        return versions, theirs if kept is None else None, kept

    def _compile(self, inputs: Sequence[tuple[Path, str]], limits: Path | None) -> str:
        self._say("resolving packages with uv")
        wanted, resolved = self._scratch / "wanted.in", self._scratch / "resolved.txt"
        wanted.write_text(
            "".join(
                f"{_project_of(wheel)}{f'[{extras}]' if extras else ''} @ {wheel.as_uri()}\n"
                for wheel, extras in inputs
            )
        )
        told = str(self._plan.project["project"].get("requires-python", ""))
        found = re.search(r">=\s*(\d+\.\d+)", told)
        oldest = found[1] if found else OLDEST_PYTHON
        command = ["pip", "compile", "--universal", "--python-version", oldest]
        command += ["--generate-hashes", "--no-annotate", "--no-header", "--quiet"]
        for wheel, _ in inputs:
            command += ["--no-emit-package", _project_of(wheel)]
        if limits is not None:
            command += ["--constraints", str(limits)]
        self._run([*command, "-o", str(resolved), str(wanted)], "uv cannot resolve it")
        lines = resolved.read_text().splitlines(keepends=True)
        lines = [line for line in lines if not line.lstrip().startswith("#")]
        for wheel, _ in inputs:
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            lines.append(f"./{OURS}/wheels/{wheel.name} --hash=sha256:{digest}\n")
        return "".join(lines)

    def _configure_pip(self) -> None:
        """Write pip's configuration for the build, with paths relative to the context."""
        told = {"disable-pip-version-check": "true", "no-input": "true", "progress-bar": "off"}
        if self._how.index_url is not None:
            told["index-url"] = self._how.index_url
        if self._how.wheels is not None:
            for wheel in sorted(self._how.wheels.glob("*.whl")):
                if not (self._wheels / wheel.name).exists():
                    shutil.copy(wheel, self._wheels)
            told |= {"no-index": "true", "find-links": f"{OURS}/wheels"}
        if self._how.ca_file is not None:
            shutil.copyfile(self._how.ca_file, self._context / OURS / "ca.pem")
            told["cert"] = f"{OURS}/ca.pem"
        parser = configparser.RawConfigParser()
        parser["global"] = told
        with (self._context / OURS / "pip.conf").open("w") as file:
            parser.write(file)

    def _run(self, command: Sequence[str], what: str, hint: str | None = None) -> None:
        where = ["--offline"] if self._how.offline else []
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(self._plan.epoch_s)}
        environment.pop("VIRTUAL_ENV", None)
        if self._how.index_url is not None:
            environment["UV_DEFAULT_INDEX"] = self._how.index_url
        if self._how.wheels is not None and command[0] != "build":
            where += ["--no-index", "--find-links", str(self._how.wheels.resolve())]
        try:
            done = subprocess.run(  # nosec B603  # no shell; uv
                [self._uv, *command, *where],
                cwd=self._copy,  # its pyproject.toml may configure uv
                capture_output=True,
                text=True,
                env=environment,
                stdin=subprocess.DEVNULL,
                timeout=UV_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise BuildError(f"{what}: uv took longer than {UV_TIMEOUT_S:g} s") from None
        if done.returncode:
            if self._how.offline and hint is None:
                hint = "without --offline, uv fetches missing packages"
            raise BuildError(what, hint=hint, log=done.stderr.strip().splitlines())


def _project_of(wheel: Path) -> str:
    return wheel.name.partition("-")[0].replace("_", "-")
