"""`openenv init`: a new environment that runs and passes the generated tests."""

from __future__ import annotations

import importlib.util
import keyword
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from openenv.cli._console import CommandError, MisuseError, emit, say, unknown_name, warn
from openenv.cli._openenv import Origin, origin_for
from openenv.cli._options import argument, option, takes_options
from openenv.cli._progress import display
from openenv.cli._template import (
    TEMPLATES,
    EnvironmentNames,
    TemplateInputs,
    render,
    template_summary,
    write_tree,
)

DEFAULT = "gym"
LOCK_TIMEOUT_S = 300.0


def _complete_templates(incomplete: str) -> list[str]:
    return [name for name in TEMPLATES if name.startswith(incomplete)]


@takes_options
def init(
    name: str | None = argument(
        None, metavar="NAME", help="Name of the Python package, for example my_env."
    ),
    output_dir: Path = option(Path(), "-o", help="Create the package in this directory."),
    template: str | None = option(
        None,
        "-t",
        metavar="|".join(TEMPLATES),
        autocompletion=_complete_templates,
        help=f"Template to start from; by default {DEFAULT}.",
    ),
    wraps: str | None = option(
        None,
        metavar="MODULE:CLASS",
        help="Class to wrap with the template package: its methods become tools; or a "
        "subclass of gymnasium.Env. The module is imported.",
    ),
    from_gymnasium: str | None = option(
        None,
        metavar="ID",
        help="Serve a Gymnasium environment, with models generated from the spaces.",
    ),
    list_templates: bool = option(False, help="List the templates, and exit."),
    lock: bool = option(
        True, help="Write a uv.lock with the versions of all dependencies; needs an index."
    ),
    as_json: bool = option(False, "--json", help="Print the written files as JSON."),
) -> None:
    """Create a new environment, ready to run.

    Examples:
        openenv init my_env --template mcp --output-dir envs
        openenv init cart_env --from-gymnasium CartPole-v1
    """
    if list_templates:
        about = {name: template_summary(name) for name in TEMPLATES}
        width = max(map(len, about))
        if as_json:
            emit({"templates": about})
        else:
            sys.stdout.writelines(f"{one:<{width}}  {words}\n" for one, words in about.items())
        return
    if name is None:
        raise MisuseError(
            "Missing argument 'NAME'",
            hint="such as: openenv init my_env; `openenv init --help` says more",
        )
    check_name(name, "init")
    chosen = _choose_template(template, wraps, from_gymnasium)
    target = output_dir / name
    check_target(target)
    names = EnvironmentNames.of(name)
    origin = origin_for(target)
    tree = _render(names, chosen, wraps, from_gymnasium, origin.fills)
    write_environment(tree, target, origin, lock=lock, as_json=as_json)


def write_environment(
    tree: Mapping[str, str | bytes],
    target: Path,
    origin: Origin,
    *,
    lock: bool,
    as_json: bool,
    builds: bool = True,
) -> None:
    """Write a tree, lock the dependencies, and print the next steps.

    Unless `builds`, uv may not build a dependency without a wheel, since a build runs code.
    """
    tree = {**tree, **origin.files}
    try:
        write_tree(tree, target)
    except OSError as error:
        raise CommandError(f"{target} could not be written: {error}") from error
    files = [*tree, "uv.lock"] if lock and _lock(target, builds) else list(tree)
    _print_next_steps(target, len(files), has_oracle="validation/oracle.py" in tree)
    if origin.words:
        say(f"\n{origin.words}")
    if as_json:
        emit({"name": target.name, "path": str(target.resolve()), "files": sorted(files)})


def _choose_template(template: str | None, wraps: str | None, from_gymnasium: str | None) -> str:
    """Return the template to use."""
    if template is not None and template not in TEMPLATES:
        raise unknown_name(f"there is no template {template!r}", template, TEMPLATES)
    given = {"--template": template, "--wraps": wraps, "--from-gymnasium": from_gymnasium}
    if from_gymnasium is not None and (template or wraps):
        other = next(name for name, value in given.items() if value)
        raise MisuseError(f"{other} and --from-gymnasium exclude each other")
    if wraps is not None and template not in (None, "package"):
        raise MisuseError(
            f"--wraps cannot be combined with the template {template}",
            hint="leave --template out, or say --template package",
        )
    if template == "package" and wraps is None:
        raise MisuseError(
            "the template package wraps a class, and none was named",
            hint="add --wraps MODULE:CLASS, for example --wraps collections:Counter",
        )
    return "package" if wraps is not None else template or DEFAULT


def _render(
    names: EnvironmentNames,
    template: str,
    wraps: str | None,
    from_gymnasium: str | None,
    more: Mapping[str, str],
) -> dict[str, str]:
    if wraps is not None:
        from openenv.cli._wraps import inspect_wrapped_class

        inputs = inspect_wrapped_class(wraps, names)
    elif from_gymnasium is not None:
        try:
            from openenv.cli._gymnasium import inspect_environment
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in ("gymnasium", "numpy"):
                raise
            raise CommandError(
                f"--from-gymnasium needs {package}, which is not installed",
                hint="pip install gymnasium",
            ) from error
        inputs = inspect_environment(from_gymnasium, names)
    else:
        inputs = TemplateInputs(TEMPLATES[template], {}, {})
    return render(names, inputs.layers, {**inputs.fills, **more}, inputs.files)


def check_name(name: str, command: str) -> None:
    """Refuse a name that is not a valid package name, or that hides a package."""
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) or not re.search("[A-Za-z]", name):
        raise MisuseError(
            f"{name!r} cannot be the name of a Python package: letters, digits and underscores, "
            "and no digit first",
            hint=_proposal(name, command),
        )
    if keyword.iskeyword(name) or name in sys.stdlib_module_names or _is_installed(name):
        raise MisuseError(
            f"{name!r} is taken: Python, or a package that is installed, has a meaning for it",
            hint=_proposal(f"{name}_env", command),
        )


def _is_installed(name: str) -> bool:
    """Return whether the new package would hide an installed package."""
    found = importlib.util.find_spec(name)
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return name == "openenv" or (
        found is not None and any(str(found.origin).startswith(place) for place in places)
    )


def _proposal(name: str, command: str) -> str:
    words = "_".join(re.findall("[A-Za-z0-9]+", name)).lower()
    if not re.search("[a-z]", words):
        words = "my_env"
    elif words[0].isdigit():
        words = f"env_{words}"
    return f"use {words}: openenv {command} {'SOURCE -n ' if command == 'import' else ''}{words}"


def check_target(target: Path) -> None:
    """Refuse a target directory that is not empty."""
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        kind = "is not empty" if target.is_dir() else "is in the way"
        raise MisuseError(
            f"{target} {kind}", hint="choose another name, or another place with --output-dir"
        )


def _lock(target: Path, builds: bool) -> bool:
    """Lock the dependencies with uv; return whether that succeeded."""
    hint = "pip install uv, then run `uv lock` in it"
    why = "uv is not installed"
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is not None:
        hint = "run `uv lock` in it where uv has an index"
        with display() as shown:
            shown.begin("locking dependencies with uv", 1)
            try:
                done = subprocess.run(  # nosec B603  # no shell; uv
                    [uv, "lock", "--quiet", *(() if builds else ("--no-build",))],
                    cwd=target,
                    capture_output=True,
                    text=True,
                    stdin=subprocess.DEVNULL,
                    timeout=LOCK_TIMEOUT_S,
                )
                why = " ".join(done.stderr.split()) if done.returncode else ""
            except subprocess.TimeoutExpired:
                why = f"uv took longer than {LOCK_TIMEOUT_S:g} s"
            shown.finish("failed" if why else "uv.lock")
    if why:
        warn(f"warning: no uv.lock was written: {why.removeprefix('error: ')}")
        say(f"hint: {hint}; until then `openenv validate` finds that nothing is fixed")
    return not why


def _print_next_steps(target: Path, count: int, *, has_oracle: bool) -> None:
    level = "" if has_oracle else " --level runtime"  # higher levels require an oracle
    steps = {
        f"cd {shlex.quote(str(target))} && pip install -e . && pytest": "install and test it",
        "openenv serve": "serve it",
        f"openenv validate --skip-build{level}": "check it for training",
    }
    width = max(map(len, steps))
    say(f"Environment initialized: {target} ({count} files)", style="green")
    say("\nNext:\n" + "\n".join(f"  {step:<{width}}  # {why}" for step, why in steps.items()))
    say(
        f"\nMake it yours in models.py and server/{target.name}_environment.py; then change\n"
        "validation/ (oracle.py, runtime.json) and tests/ to match."
    )
