"""`openenv info`: what is known of an environment; or which ones are installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from openenv.cli import _completion
from openenv.cli._console import MISUSED, CommandError, emit, say, stdout
from openenv.cli.commands.serve import package_called

__all__ = ["info"]


def info(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="The name of an installed environment, the address of a server, or whatever "
            "`openenv serve` takes. By default the environments that are installed are listed.",
            autocompletion=_completion.environments,
            show_default=False,
        ),
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Say what its files say only; run nothing of it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Say what is known of an environment: its actions, observations, tools, reward, tasks, limits.

    One that is no server is served for a moment, from a process of its own.

    Examples:
        openenv info  # what is installed
        openenv info echo
        openenv info http://localhost:8000 --json
    """
    from openenv.auto._discovery import UnknownEnvironmentError
    from openenv.errors import ConnectError, OpenEnvError, ProviderError

    try:
        if target is None:
            _list(as_json)
            return
        told = _told(target, static)
    except UnknownEnvironmentError as error:
        raise CommandError(str(error), hint="`openenv info` lists them") from error
    except ConnectError as error:
        raise CommandError(str(error), hint="is it running? start it: openenv serve") from error
    except ProviderError as error:
        why = str(error).splitlines()[-1].removeprefix("error: ")  # the last words of its server
        hint = "--static says what its files say, and runs nothing of it"
        raise CommandError(f"{target} cannot be served: {why}", hint=hint) from error
    except OpenEnvError as error:
        raise CommandError(str(error)) from error
    if as_json:
        emit(told)
    else:
        _show(told)


def _told(target: str, static: bool) -> dict[str, Any]:
    from openenv.cli import _info

    url = _info.address_of(target)
    if url is not None:
        if static:
            raise CommandError(
                f"--static: {url} is a server, and has no files",
                hint=f"openenv info {url}",
                exit_code=MISUSED,
            )
        return {"target": target, "url": url, **_info.of_server(url)}
    files = {"target": target, **_info.of_files(target)}
    if static:
        return files
    with _info.served(package_called(target)) as address:
        # What is stated of a package says more than what its class is called.
        return {**_info.of_server(address), **files}


def _list(as_json: bool) -> None:
    from openenv.cli import _info

    found = _info.installed()
    if as_json:
        emit({"environments": found})
        return
    if not found:
        say("no environment is installed; make one: openenv init my_env")
        return
    from rich.table import Table

    table = Table("name", "version", "description", box=None, pad_edge=False)
    for one in found:
        table.add_row(one["name"], one["version"], one["description"])
    stdout().print(table)


def _show(told: dict[str, Any]) -> None:
    from rich.text import Text

    version = f" {told['version']}" if told.get("version") else ""
    stdout().print(Text(f"{told['name']}{version}", style="bold"), soft_wrap=True)
    if told.get("description"):
        stdout().print(Text(str(told["description"])), soft_wrap=True)
    for name, value in _rows(told):
        stdout().print(Text.assemble((f"  {name:<12}", "dim"), value), soft_wrap=True)


def _rows(told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from openenv.cli._info import outline

    for name in ("url", "package", "directory", "app", "image", "health", "mode", "author"):
        if told.get(name):
            yield name, str(told[name])
    for name, schema in told.get("schema", {}).items():
        if line := outline(schema):
            yield name, line
    if told.get("tools"):
        yield "tools", ", ".join(map(str, told["tools"]))
    if told.get("reward"):
        yield "reward", _reward(told["reward"])
    if told.get("tasks"):
        yield "tasks", ", ".join(f"{split} {count:,}" for split, count in told["tasks"].items())
    if told.get("sessions"):
        yield "sessions", f"{told['sessions']['open']:,} of {told['sessions']['most']:,}"
    if told.get("limits"):
        yield "limits", ", ".join(f"{name} {value}" for name, value in told["limits"].items())
    if told.get("tags"):
        yield "tags", ", ".join(map(str, told["tags"]))


def _reward(spec: dict[str, Any]) -> str:
    words = str(spec.get("kind") or "")
    if spec.get("range"):
        words += " from {} to {}".format(*spec["range"])
    if spec.get("components"):
        words += f", of {', '.join(spec['components'])}"
    return words
