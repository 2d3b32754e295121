from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import typer
from support.commands import COMMAND, environ, openenv_running, run_openenv
from typer.testing import CliRunner

from openenv.cli.__main__ import app
from openenv.cli._console import CommandError
from openenv.cli._options import option, takes_options
from openenv.cli.commands import containers
from openenv.errors import ConnectError

GROUP: Any = typer.main.get_command(app)


def everything() -> Iterator[tuple[str, Any]]:
    """Every command, below its groups too, by its words."""
    context = typer.Context(GROUP, info_name="openenv")
    stack = [(name, GROUP.get_command(context, name)) for name in GROUP.list_commands(context)]
    while stack:
        words, command = stack.pop()
        yield words, command
        stack += [
            (f"{words} {name}", one) for name, one in getattr(command, "commands", {}).items()
        ]


ALL = dict(everything())
LEAVES = {words: one for words, one in ALL.items() if not hasattr(one, "commands")}


# ------------------------------------------------------------------ help


@pytest.mark.parametrize("words", LEAVES)
def test_a_command_has_a_help_of_sentences_and_examples(words: str) -> None:
    command = LEAVES[words]
    assert command.help.partition("\n")[0].endswith((".", "?"))
    assert any(f"openenv {words}" in example.line for example in command.examples)


@pytest.mark.parametrize("words", LEAVES)
def test_the_examples_of_a_command_are_understood(words: str) -> None:
    for example in LEAVES[words].examples:
        arguments = shlex.split(example.line.partition(" > ")[0])
        if arguments[: len(words.split()) + 1] != ["openenv", *words.split()]:
            continue
        LEAVES[words].make_context(words, arguments[len(words.split()) + 1 :])


@pytest.mark.parametrize("words", ALL)
def test_every_command_has_the_global_options(words: str) -> None:
    names = {name for param in ALL[words].params for name in param.opts}
    assert {"--quiet", "--color", "--debug"} <= names


@pytest.mark.slow
def test_help_shows_the_examples_as_they_can_be_copied(tmp_path: Path) -> None:
    done = run_openenv("ps", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "\n Examples:\n   openenv ps\n   openenv ps --json\n" in done.stdout


@pytest.mark.parametrize("words", ["", *ALL])
def test_help_breaks_no_word_at_80_columns(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, [*words.split(), "--help"]).stdout
    assert max(map(len, shown.splitlines())) <= 80
    said = " ".join(shown.split())
    command = ALL[words] if words else GROUP
    for param in command.params:
        for word in (*param.opts, *(param.help or "").split()):
            assert param.param_type_name == "argument" or word in said
    for example in getattr(command, "examples", ()):
        assert all(word in said for word in example.line.split())


@pytest.mark.parametrize("words", ["", "catalog"])
def test_help_of_a_group_shows_commands_before_options(words: str) -> None:
    shown = CliRunner().invoke(app, [*words.split(), "--help"]).stdout
    assert shown.index("serve ") < shown.index(" Options:") < shown.index(" Global options:")


# ------------------------------------------------------------------ how it ends


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def ps() -> None:
        raise error

    monkeypatch.setattr(containers, "ps", ps)


def test_an_unforeseen_error_is_one_line_and_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyError("x"))
    done = run("ps")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr == (
        "Error: KeyError: 'x'\nhint: `openenv --debug COMMAND ...` shows the traceback\n"
    )


def test_an_error_of_this_package_says_all_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ConnectError("nobody is there"))
    assert run("ps").stderr.startswith("Error: nobody is there\n")


@pytest.mark.parametrize("arguments", [("--debug", "ps"), ("ps", "--debug")])
def test_debug_shows_where_an_error_comes_from(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openenv.cli._console._OutputSettings.debug", False)
    failing(monkeypatch, KeyError("x"))
    done = run(*arguments)
    assert done.exit_code == 1
    assert done.stderr.startswith("Traceback ")
    assert done.stderr.endswith("Error: KeyError: 'x'\n")


def test_the_variable_shows_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyError("x"))
    monkeypatch.setenv("OPENENV_DEBUG", "1")
    assert run("ps").stderr.startswith("Traceback ")


def test_a_command_chooses_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, CommandError("no", hint="yes", exit_code=3))
    done = run("ps")
    assert (done.exit_code, done.stderr) == (3, "Error: no\nhint: yes\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Exit(130)])
def test_an_interrupt_says_so_and_leaves_130(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, error)
    done = run("ps")
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.slow
def test_ctrl_c_ends_a_command_that_runs(tmp_path: Path) -> None:
    with openenv_running(
        "serve", "echo_env", "--port=0", "--json", cwd=tmp_path, log=tmp_path / "log"
    ) as server:
        url = server.first_line()["url"]
        watching = [*COMMAND, "top", url, "--json", "--interval=0.1"]
        with subprocess.Popen(
            watching, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as top:
            assert top.stdout is not None
            assert top.stdout.readline()
            top.send_signal(signal.SIGINT)
            _, words = top.communicate(timeout=20)
    assert (top.returncode, words) == (130, "interrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["--help", "serve --help", "--version"])
def test_a_pipe_that_is_closed_is_no_news(arguments: str, tmp_path: Path) -> None:
    line = f"{shlex.join(COMMAND)} {arguments} | true"
    done = subprocess.run(
        ["bash", "-c", line], env=environ(), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stderr == ""


def test_a_command_that_others_add_is_there_too() -> None:
    extended = typer.Typer(cls=type(GROUP))
    extended.callback()(lambda: None)
    extended.command("mine")(lambda: typer.echo("mine"))
    assert CliRunner().invoke(extended, ["mine"]).stdout == "mine\n"
    assert "mine" in CliRunner().invoke(extended, ["--help"]).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("serve", "broken.py", "--debug"), ("--debug", "mcp", "broken.py")]
)
def test_code_that_fails_shows_where_if_asked(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("{}['x']\n")
    done = run_openenv(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback ")
    assert done.stderr.endswith("could not be loaded: KeyError: 'x' (broken.py, line 1)\n")


# ------------------------------------------------------------------ its manner


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before", "after"])
def test_quiet_leaves_data_and_errors(where: str, tmp_path: Path) -> None:
    words = ("init", "quiet_env", "--json", "--no-lock")
    done = run_openenv(*(("-q", *words) if where == "before" else (*words, "-q")), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"name": "quiet_env"' in done.stdout
    again = run_openenv("-q", *words, cwd=tmp_path)
    assert again.returncode == 2
    assert again.stderr.startswith("Error: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "variables", "is_coloured"),
    [
        ((), {}, False),
        (("--color",), {}, True),
        (("--color",), {"NO_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "1"}, True),
        (("--no-color",), {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_is_as_the_option_and_the_variables_say(
    option: tuple[str, ...], variables: dict[str, str], is_coloured: bool, tmp_path: Path
) -> None:
    plain = {
        name: value
        for name, value in {**environ(), **variables}.items()
        if name != "NO_COLOR" or name in variables
    }
    done = subprocess.run(
        [*COMMAND, *option, "init"], env=plain, cwd=tmp_path, capture_output=True, text=True
    )
    assert ("\x1b[" in done.stderr) is is_coloured, done.stderr


# ------------------------------------------------------------------ completion


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Any]:
    """What a bash that has read the script of --show-completion completes a line to."""
    program = tmp_path / "bin" / "openenv"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    program.chmod(0o700)
    path = os.pathsep.join((str(program.parent), os.environ["PATH"]))

    def complete(line: str) -> list[str]:
        words = shlex.join(line.split(" "))
        script = f"""
            eval "$(openenv --show-completion)"
            COMP_WORDS=({words}) COMP_CWORD={line.count(" ")}
            $(complete -p openenv | sed 's/.* -F \\([^ ]*\\) .*/\\1/') openenv
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        done = subprocess.run(
            ["bash", "-c", script],
            env={**environ(), "PATH": path},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    yield complete


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("openenv ser", ["serve"]),
        ("openenv serve --por", ["--port"]),
        ("openenv serve ech", ["echo"]),
        ("openenv rollout wordl", ["wordle"]),
        ("openenv validate --provider pro", ["process"]),
        ("openenv serve /et", []),
    ],
)
def test_a_real_bash_completes_commands_options_and_environments(
    line: str, completed: list[str], bash: Any
) -> None:
    assert bash(line) == completed


@pytest.mark.slow
def test_completion_is_installed_where_the_shell_looks(tmp_path: Path) -> None:
    line = f"{shlex.join(COMMAND)} --install-completion; true"
    home = {**environ(), "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", line], env=home, capture_output=True, text=True)
    assert "bash completion installed in" in done.stdout, done.stderr
    assert "_OPENENV_COMPLETE" in (tmp_path / ".bash_completions" / "openenv.sh").read_text()
    assert "openenv.sh" in (tmp_path / ".bashrc").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_answered(shell: str, tmp_path: Path) -> None:
    asking = {**environ(), "_OPENENV_COMPLETE": f"complete_{shell}", "COMP_CWORD": "1"}
    asking |= {"COMP_WORDS": "openenv ser", "_TYPER_COMPLETE_ARGS": "openenv ser"}
    asking |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(COMMAND, env=asking, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "serve" in done.stdout and "init" not in done.stdout


# ------------------------------------------------------------------ groups of options


@dataclass(frozen=True)
class Crew:
    PANEL: ClassVar[str] = "Of the crew"

    captain: str = option(..., help="Who leads.")
    sailors: int = option(3, min=1, help="How many.")


def test_a_command_takes_a_group_of_options() -> None:
    taken: list[tuple[Crew, bool]] = []

    @takes_options
    def sail(crew: Crew, night: bool = option(False, help="Sail in the dark.")) -> None:
        taken.append((crew, night))

    app = typer.Typer()
    app.command()(sail)
    runner = CliRunner()
    assert runner.invoke(app, ["--captain", "Ann", "--night"]).exit_code == 0
    assert runner.invoke(app, ["--captain", "Ann", "--sailors", "0"]).exit_code == 2
    assert runner.invoke(app, []).exit_code == 2
    assert taken == [(Crew("Ann", 3), True)]
    assert "Of the crew" in runner.invoke(app, ["--help"]).output
