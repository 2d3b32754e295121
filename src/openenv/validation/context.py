"""A validation run: the state that the collectors of all levels share.

`ValidationRun` owns every subject that it starts: `close` stops all subjects in any case. The
shared subject (`running`) is started once, on first use; collectors do nothing invasive to it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from openenv._internal.redaction import redact
from openenv.errors import OpenEnvError
from openenv.validation.graders import Evidence
from openenv.validation.manifest import (
    AnyManifest,
    ExecutionDeclaration,
    NetworkPolicy,
    get_execution,
)
from openenv.validation.providers import (
    LaunchSpec,
    RunningSubject,
    SubjectError,
    UnmetRequirement,
    ValidationProvider,
)

LOG_FILE, MAX_LOG_BYTES = "server.log", 2**20


@dataclass(frozen=True)
class RunOptions:
    """Limits and seeds of a run."""

    startup_timeout_s: float = 60.0  # seconds that a subject may take to answer
    timeout_s: float = 300.0  # seconds that all collectors of one level may take together
    seed: int = 42  # the seed of probes and learners
    learning_episodes: int = 1_500  # episodes that each learner of `--learn` plays in training


@dataclass(frozen=True)
class Startup:
    """The result of starting the subject: evidence of every run at the runtime level."""

    provider: str
    seconds: float = 0.0  # seconds to start, without the build; 0 if the subject did not start
    # The phase that failed: ``build``, ``start`` or ``readiness``; None if no phase failed.
    phase: str | None = None
    reason: str = ""  # why the phase failed, or what is missing
    # The capability that this machine or provider lacks; None if the package is at fault or
    # nothing failed.
    missing: str | None = None
    logs: str = ""  # the subject's last lines of output, if a phase failed

    @property
    def is_running(self) -> bool:
        """True if the subject started and answered."""
        return self.phase is None and self.missing is None


@dataclass
class ValidationRun(AbstractContextManager["ValidationRun"]):
    """A package under validation, the provider that starts it, and the evidence."""

    root: Path
    manifest: AnyManifest
    outputs_dir: Path
    provider: ValidationProvider  # starts the package
    options: RunOptions = field(default_factory=RunOptions)
    evidence: Evidence = field(default_factory=Evidence)
    image_ref: str | None = None  # the image to start; set by `start`
    tell: Callable[[str], None] = lambda text: None  # receives progress messages for people
    _running: RunningSubject | None = field(default=None, repr=False)
    _started: list[RunningSubject] = field(default_factory=list, repr=False)

    @property
    def execution(self) -> ExecutionDeclaration:
        """The declared way to run the package, or the defaults."""
        return get_execution(self.manifest)

    @property
    def running(self) -> RunningSubject:
        """The subject that all collectors share, started on first use.

        Raises:
            SubjectError: The subject does not start.
            UnmetRequirement: The subject cannot be started here.
        """
        if self._running is None:
            self._running = self.start()
        return self._running

    def start(
        self, variables: Mapping[str, str] | None = None, network: NetworkPolicy | None = None
    ) -> RunningSubject:
        """Start another subject, for an invasive test or for a comparison.

        The subject is stopped at the end of the run unless the caller stops it earlier. Its network
        policy is by default the declared one.

        Raises:
            SubjectError: The subject does not start.
            UnmetRequirement: The subject cannot be started here.
        """
        spec = LaunchSpec(
            image_ref=self._build(),
            resources=self.manifest.resources,
            network=network or self.manifest.network,
            run_id=f"validate-{secrets.token_hex(8)}",
            startup_timeout_s=min(self.options.startup_timeout_s, 300.0),
            env_vars=dict(variables or {}),
        )
        subject = self.provider.start(spec)
        self._started.append(subject)
        return subject

    def _build(self) -> str:
        if self.image_ref is None:
            self.image_ref = self.provider.build(self.root, self.execution)
        return self.image_ref

    def start_up(self) -> Startup:
        """Start the shared subject and record the result as evidence."""
        name = self.provider.name
        self.tell(f"starting it ({name})")
        try:
            self._build()
            began = time.monotonic()
            assert self.running is not None
            startup = Startup(name, time.monotonic() - began)
        except SubjectError as error:
            startup = Startup(name, phase=error.phase, reason=str(error), logs=error.logs)
        except UnmetRequirement as error:
            startup = Startup(name, reason=str(error), missing=error.capability)
        self.evidence.put(startup)
        return startup

    def close(self) -> None:
        """Stop all subjects. Idempotent.

        The output of the shared subject is written to ``server.log``, without secrets.
        """
        shared, self._running = self._running, None
        if shared is not None:
            with suppress(OpenEnvError, OSError):  # a server that ended may have no log
                text = redact(shared.logs(MAX_LOG_BYTES))
                (self.outputs_dir / LOG_FILE).write_text(text, encoding="utf-8")
        with ExitStack() as stopping:  # a stop that fails must not prevent the other stops
            while self._started:
                stopping.callback(self._started.pop().stop)

    def __exit__(self, *exc: object) -> None:
        self.close()
