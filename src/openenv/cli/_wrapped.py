"""The application of `openenv serve --mcp`: MCP servers as an environment."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openenv._internal.imports import NameNotFound, import_attribute
from openenv.cli._console import MISUSED, CommandError, did_you_mean

if TYPE_CHECKING:
    from openenv.execution.recording import RecordingOptions
    from openenv.tools.sources import Program

__all__ = ["MCPServeOptions"]


@dataclass(frozen=True)
class MCPServeOptions:
    """The options of `openenv serve` for `openenv.tools.wrap`.

    Attributes:
        mcp: Command lines, URLs and paths of mcp.json files.
        reward: The function that scores calls, as ``module:function``.
        done: The function that decides whether the episode is over, as ``module:function``.
        rubric: The rubric or rubric class, as ``module:name``.
        reset_tool: The tool that begins an episode.
        max_steps: Number of calls after which an episode is truncated.
    """

    mcp: Sequence[str]
    reward: str | None = None
    done: str | None = None
    rubric: str | None = None
    reset_tool: str | None = None
    max_steps: int | None = None

    def check(self, *, has_target: bool, reload: bool) -> None:
        """Check that the options are consistent.

        Raises:
            CommandError: The options contradict each other.
        """
        others = {
            "--reward": self.reward,
            "--done": self.done,
            "--rubric": self.rubric,
            "--reset-tool": self.reset_tool,
            "--max-steps": self.max_steps,
        }
        given = [option for option, value in others.items() if value is not None]
        if not self.mcp and given:
            raise CommandError(
                f"{given[0]} is for MCP servers only",
                hint='name one: --mcp "npx some-server"; an environment of your own scores itself',
                exit_code=MISUSED,
            )
        if self.mcp and has_target:
            raise CommandError("TARGET and --mcp exclude each other", exit_code=MISUSED)
        if self.mcp and reload:
            raise CommandError("--reload and --mcp exclude each other", exit_code=MISUSED)

    def __str__(self) -> str:
        from openenv._internal.redaction import redact

        return redact(", ".join(self.mcp))

    def application(
        self, workers: int | None, recording: RecordingOptions | None, debug: bool
    ) -> Any:
        """Create the application.

        Raises:
            CommandError: A server or a function is not available.
        """
        from openenv.errors import KeyFileError
        from openenv.server.app import create_app
        from openenv.tools.sources import Program, read_sources
        from openenv.tools.wrapped import wrap

        try:
            sources = read_sources(*self.mcp)
            wrapped = wrap(
                sources,
                reward=_import_named("reward", self.reward),
                done=_import_named("done", self.done),
                rubric=_import_named("rubric", self.rubric),
                reset_tool=self.reset_tool,
                max_steps=self.max_steps,
            )
        except (TypeError, ValueError) as error:
            raise CommandError(str(error), exit_code=MISUSED) from error
        for source in sources.values():
            if isinstance(source, Program):
                _check_program(source)
        try:
            return create_app(wrapped, workers=workers, record=recording, debug=debug or None)
        except KeyFileError as error:
            raise CommandError(str(error)) from error


def _import_named(option: str, text: str | None) -> Any:
    """Import ``module:name``."""
    if text is None:
        return None
    module, _, name = text.partition(":")
    if not module or not name:
        raise CommandError(
            f"--{option} {text!r} is not of the form module:name",
            hint=f"expected module:name, such as --{option} scores:{option}",
            exit_code=MISUSED,
        )
    try:
        return import_attribute(text)
    except NameNotFound as error:
        places = f"{module}.py is looked for in this directory, and among what is installed"
        raise CommandError(
            f"--{option}: {error}",
            hint=did_you_mean(error.missing, error.known) if error.known else places,
            exit_code=MISUSED,
        ) from error
    except ModuleNotFoundError as error:
        raise CommandError(f"--{option} {text}: {error}") from error


def _check_program(source: Program) -> None:
    program = source.command[0]
    path = source.env.get("PATH")
    if shutil.which(program, path=path) is None and not (source.cwd and "/" in program):
        raise CommandError(
            f"there is no program {program!r} to run an MCP server",
            hint="install it, or give its path",
            exit_code=MISUSED,
        )
