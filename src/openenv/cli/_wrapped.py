"""The application of `openenv serve --mcp`: MCP servers as an environment."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openenv._internal.imports import NameNotFound, import_attribute
from openenv.cli._console import CommandError, MisuseError, did_you_mean
from openenv.cli._options import option

if TYPE_CHECKING:
    from openenv.execution.recording import RecordingOptions


@dataclass(frozen=True)
class MCPServeOptions:
    """The options of `openenv serve` for `openenv.tools.wrap`."""

    mcp: list[str] | None = option(
        None,
        metavar="SERVER",
        help="Serve an MCP server instead of a TARGET: a command line, the URL of a Streamable "
        "HTTP server, or the path of an mcp.json. Repeatable.",
    )
    reward: str | None = option(
        None,
        metavar="MODULE:FUNCTION",
        help="With --mcp: score each call with this function of the call and its observation.",
    )
    done: str | None = option(
        None,
        metavar="MODULE:FUNCTION",
        help="With --mcp: end the episode when this function of the call and its observation "
        "returns True.",
    )
    rubric: str | None = option(
        None,
        metavar="MODULE:NAME",
        help="With --mcp: score calls with this rubric or rubric class.",
    )
    reset_tool: str | None = option(
        None,
        metavar="NAME",
        help="With --mcp: begin an episode with this tool; by default with the tool reset. "
        "Without such a tool every episode has a new process.",
    )
    max_steps: int | None = option(
        None,
        min=1,
        help="With --mcp: truncate an episode after this many calls. By default there is no limit.",
    )

    def check(self, *, has_target: bool, reload: bool) -> None:
        """Check that the options are consistent."""
        given = [name for name, value in vars(self).items() if name != "mcp" and value is not None]
        if not self.mcp and given:
            raise MisuseError(
                f"--{given[0].replace('_', '-')} is for MCP servers only",
                hint='name one: --mcp "npx some-server"; an environment of your own scores itself',
            )
        if self.mcp and has_target:
            raise MisuseError("TARGET and --mcp exclude each other")
        if self.mcp and reload:
            raise MisuseError("--reload and --mcp exclude each other")

    def __str__(self) -> str:
        from openenv._internal.redaction import redact

        return redact(", ".join(self.mcp or ()))

    def application(
        self, workers: int | None, recording: RecordingOptions | None, debug: bool
    ) -> Any:
        """Create the application."""
        from openenv.errors import KeyFileError
        from openenv.server.app import create_app
        from openenv.server.loading import session_limit
        from openenv.tools.sources import Program, read_sources
        from openenv.tools.wrapped import wrap

        try:
            sources = read_sources(*self.mcp or ())
            wrapped = wrap(
                sources,
                reward=_import_named("reward", self.reward),
                done=_import_named("done", self.done),
                rubric=_import_named("rubric", self.rubric),
                reset_tool=self.reset_tool,
                max_steps=self.max_steps,
            )
        except (TypeError, ValueError) as error:
            raise MisuseError(str(error)) from error
        for source in sources.values():
            if not isinstance(source, Program):
                continue
            program, path = source.command[0], source.env.get("PATH")
            if shutil.which(program, path=path) is None and not (source.cwd and "/" in program):
                raise MisuseError(
                    f"there is no program {program!r} to run an MCP server",
                    hint="install it, or give its path",
                )
        try:
            return create_app(
                wrapped,
                max_concurrent_envs=session_limit(wrapped),
                workers=workers,
                record=recording,
                debug=debug or None,
            )
        except KeyFileError as error:
            raise CommandError(str(error)) from error


def _import_named(name: str, text: str | None) -> Any:
    """Import ``module:name``."""
    if text is None:
        return None
    module, _, attribute = text.partition(":")
    if not module or not attribute:
        raise MisuseError(
            f"--{name} {text!r} is not of the form module:name",
            hint=f"expected module:name, such as --{name} scores:{name}",
        )
    try:
        return import_attribute(text)
    except NameNotFound as error:
        places = f"{module}.py is looked for in this directory, and among what is installed"
        raise MisuseError(
            f"--{name}: {error}",
            hint=did_you_mean(error.missing, error.known) if error.known else places,
        ) from error
    except ModuleNotFoundError as error:
        raise CommandError(f"--{name} {text}: {error}") from error
