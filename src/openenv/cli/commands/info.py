"""`openenv info`: the data of an environment, or the list of installed ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from openenv.cli._console import CommandError, MisuseError, emit, say, stdout
from openenv.cli._options import argument, complete_environments, option, takes_options
from openenv.cli.commands.serve import package_called


@takes_options
def info(
    target: str | None = argument(
        None,
        metavar="[TARGET]",
        autocompletion=complete_environments,
        help="Installed environment, address of a server, or any TARGET of `openenv "
        "serve`. By default list the installed environments.",
    ),
    static: bool = option(False, help="Show only the data in files, and run nothing."),
    as_json: bool = option(False, "--json", help="Print the data as JSON."),
) -> None:
    """Show an environment's actions, observations, tools, reward, tasks and limits.

    A target that is not a server is served temporarily by another process.

    Examples:
        openenv info echo
        openenv info http://localhost:8000 --json
    """
    from openenv.errors import ConnectError, OpenEnvError, ProviderError
    from openenv.hub.discovery import UnknownEnvironmentError

    try:
        if target is None:
            _print_installed(as_json)
            return
        told = _collect(target, static)
    except UnknownEnvironmentError as error:
        raise CommandError(str(error), hint="`openenv info` lists them") from error
    except ConnectError as error:
        raise CommandError(str(error), hint="is it running? start it: openenv serve") from error
    except ProviderError as error:
        why = str(error).splitlines()[-1].removeprefix("error: ")  # the last line of server output
        raise CommandError(
            f"{target} cannot be served: {why}",
            hint="--static says what its files say, and runs nothing of it",
        ) from error
    except OpenEnvError as error:
        raise CommandError(str(error)) from error
    if as_json:
        emit(told)
    else:
        _print(told)


def _collect(target: str, static: bool) -> dict[str, Any]:
    from openenv.cli import _info

    url = _info.server_address(target)
    if url is not None:
        if static:
            raise MisuseError(
                f"--static: {url} is a server, and has no files", hint=f"openenv info {url}"
            )
        return {"target": target, "url": url, **_info.query_server(url)}
    files = {"target": target, **_info.read_files(target)}
    if static:
        return files
    with _info.serve_temporarily(package_called(target)) as address:
        # The package's files override the server's answers, which derive from the class.
        return {**_info.query_server(address), **files}


def _print_installed(as_json: bool) -> None:
    from openenv.cli import _info

    found = _info.list_installed()
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


def _print(told: dict[str, Any]) -> None:
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
        yield "reward", _describe_reward(told["reward"])
    if told.get("tasks"):
        yield "tasks", ", ".join(f"{split} {count:,}" for split, count in told["tasks"].items())
    if told.get("sessions"):
        yield "sessions", f"{told['sessions']['open']:,} of {told['sessions']['most']:,}"
    if told.get("limits"):
        yield "limits", ", ".join(f"{name} {value}" for name, value in told["limits"].items())
    if told.get("tags"):
        yield "tags", ", ".join(map(str, told["tags"]))


def _describe_reward(spec: dict[str, Any]) -> str:
    words = str(spec.get("kind") or "")
    if spec.get("range"):
        words += " from {} to {}".format(*spec["range"])
    if spec.get("components"):
        words += f", of {', '.join(spec['components'])}"
    return words
