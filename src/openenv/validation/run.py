"""One run of a validation: what the collectors of its levels are given, and share."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from openenv._internal.redaction import redact
from openenv.errors import OpenEnvError
from openenv.validation.graders import Evidence
from openenv.validation.manifest import AnyManifest, ExecutionDeclaration, execution_of
from openenv.validation.providers import (
    LaunchSpec,
    RunningSubject,
    SubjectError,
    UnmetRequirement,
    ValidationProvider,
)

__all__ = ["LOG_FILE", "Run", "RunOptions", "Startup"]

LOG_FILE, MAX_LOG_BYTES = "server.log", 2**20


@dataclass(frozen=True)
class RunOptions:
    """How a run goes about it.

    Attributes:
        startup_timeout_s: Seconds that the subject may take to answer.
        timeout_s: Seconds that the collectors of one level may take together.
        seed: Of everything that is drawn: probes, learners.
        learning_episodes: How many episodes the learner of `--learn` plays.
    """

    startup_timeout_s: float = 60.0
    timeout_s: float = 300.0
    seed: int = 42
    learning_episodes: int = 1_500


@dataclass(frozen=True)
class Startup:
    """How the subject started: evidence that every run at the runtime level has.

    Attributes:
        provider: What was to start it.
        seconds: What that took, building aside; 0 where it did not start.
        phase: What failed: ``build``, ``start`` or ``readiness``; None where nothing did.
        reason: How it failed, or what is missing.
        missing: The capability that this machine or its provider lacks; None where the package is
            at fault, or nothing failed.
        logs: The last lines that it printed, where it failed.
    """

    provider: str
    seconds: float = 0.0
    phase: str | None = None
    reason: str = ""
    missing: str | None = None
    logs: str = ""

    @property
    def is_running(self) -> bool:
        """It started, and answered."""
        return self.phase is None and self.missing is None


@dataclass
class Run(AbstractContextManager["Run"]):
    """What is validated, what starts it, and what was seen of it. It is a context manager.

    Attributes:
        root: The package's directory.
        manifest: What it declares.
        outputs_dir: Where files for the artifacts go.
        provider: What starts it.
        options: How.
        evidence: What was collected.
        image_ref: What is started; set by `build`.
        tell: Told what is done now, for people to read.
        variables: Environment variables of every subject.
    """

    root: Path
    manifest: AnyManifest
    outputs_dir: Path
    provider: ValidationProvider
    options: RunOptions = field(default_factory=RunOptions)
    evidence: Evidence = field(default_factory=Evidence)
    image_ref: str | None = None
    tell: Callable[[str], None] = lambda text: None
    variables: Mapping[str, str] = field(default_factory=dict)
    _running: RunningSubject | None = field(default=None, repr=False)
    _started: list[RunningSubject] = field(default_factory=list, repr=False)

    @property
    def execution(self) -> ExecutionDeclaration:
        """How the package is run: what it declares, or the defaults."""
        return execution_of(self.manifest)

    @property
    def running(self) -> RunningSubject:
        """The subject that all share: nothing invasive is done to it.

        Raises:
            SubjectError: It does not start.
            UnmetRequirement: It cannot be started here.
        """
        if self._running is None:
            self._running = self.start()
        return self._running

    def start(self, variables: Mapping[str, str] | None = None) -> RunningSubject:
        """Start one more subject, for something invasive, or to compare with another.

        It ends with the run; who needs it no longer may stop it before.

        Args:
            variables: Environment variables on top of the run's.

        Raises:
            SubjectError: It does not start.
            UnmetRequirement: It cannot be started here.
        """
        if self.image_ref is None:
            self.image_ref = self.provider.build(self.root, self.execution)
        spec = LaunchSpec(
            image_ref=self.image_ref,
            resources=self.manifest.resources,
            network=self.manifest.network,
            run_id=f"validate-{secrets.token_hex(8)}",
            startup_timeout_s=min(self.options.startup_timeout_s, 300.0),
            env_vars={**self.variables, **(variables or {})},
        )
        subject = self.provider.start(spec)
        self._started.append(subject)
        return subject

    def start_up(self) -> Startup:
        """Start the shared subject, and note how that went as evidence."""
        self.tell(f"starting it ({self.provider.name})")
        began = time.monotonic()
        try:
            if self.image_ref is None:
                self.image_ref = self.provider.build(self.root, self.execution)
            began = time.monotonic()
            assert self.running is not None
            startup = Startup(self.provider.name, time.monotonic() - began)
        except SubjectError as error:
            startup = Startup(
                self.provider.name, phase=error.phase, reason=str(error), logs=error.logs
            )
        except UnmetRequirement as error:
            startup = Startup(self.provider.name, reason=str(error), missing=error.capability)
        self.evidence.put(startup)
        return startup

    def close(self) -> None:
        """Stop everything that was started. Safe to repeat.

        What the shared subject has printed is kept, without secrets, as ``server.log``.
        """
        shared, self._running = self._running, None
        if shared is not None:
            with suppress(OpenEnvError, OSError):  # one that is gone may have no log any more
                text = redact(shared.logs(MAX_LOG_BYTES))
                (self.outputs_dir / LOG_FILE).write_text(text, encoding="utf-8")
        with ExitStack() as stopping:  # one that cannot be stopped keeps no other from it
            while self._started:
                stopping.callback(self._started.pop().stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
