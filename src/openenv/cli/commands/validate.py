"""`openenv validate`: check that an environment can be trusted and learned from."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from openenv._internal.quoting import printable
from openenv._internal.targets import TargetKind, parse_target
from openenv._internal.terminal import console as terminal
from openenv.cli._console import FAILED, CommandError, emit, say, unknown_name
from openenv.cli._options import argument, complete_environments, option, takes_options
from openenv.cli.commands.build import check_lock, check_openenv, own_dockerfile

if TYPE_CHECKING:
    from rich.console import Console

    from openenv.manifest import ManifestProblem
    from openenv.validation.pages import Page
    from openenv.validation.report import CheckResult
    from openenv.validation.runner import Validation
    from openenv.validation.server_criteria import ServerReport
    from openenv.validation.static.builds import BuildSettings
    from openenv.validation.types import Level

# Exit codes of RFC 008 besides 0 and 1: TARGET is not a package; any other error.
NO_PACKAGE = 2
INTERNAL = 3

FORMATS = ("html", "md")
STYLES = {
    "pass": "green",  # nosec B105  # no password
    "warn": "yellow",
    "fail": "bold red",
    "error": "bold red",
    "skip": "dim",
}
EVIDENCE = 6


class ProviderChoice(str, Enum):
    """The providers that can start a package."""

    AUTO = "auto"
    DOCKER = "docker"
    PROCESS = "process"


@dataclass(frozen=True)
class ValidateOptions:
    """The options of a validation, except those of the image."""

    target: str | None = argument(
        None,
        metavar="[TARGET]",
        autocompletion=complete_environments,
        help="Directory with an openenv.yaml, installed environment, address of a server, or "
        "docker://IMAGE; of the last two only the routes are checked. By default the current "
        "directory.",
    )
    url: str | None = option(
        None, metavar="URL", help="Check only the routes of this running server."
    )
    level: str = option(
        "semantic",
        metavar="static|runtime|semantic",
        help="Depth: read the package, also serve it, or also check the meaning of the reward.",
    )
    skip_build: bool = option(False, help="Build no image, and skip checks that need one.")
    local: bool = option(False, help="Treat TARGET as a package, the default; excludes --url.")
    policy: str | None = option(
        None,
        metavar="VERSION|FILE",
        help="Severity policy: v1 (static), v2, v3, or a file. By default v1 for the static "
        "level, v3 for the others.",
    )
    as_json: bool = option(False, "--json", help="Print the report as JSON.")
    output: Path | None = option(
        None,
        metavar="FILE",
        help="Write the report as JSON to this file, and the evidence to the directory "
        ".artifacts beside it.",
    )
    timeout: float = option(
        5.0, metavar="SECONDS", min=0.1, help="With --url: maximum seconds per route."
    )
    learn: bool = option(False, help="Also train a small learner, which takes minutes.")
    report: str | None = option(
        None,
        metavar="html,md",
        help="Write reports for people: beside --output, or as validation.html and .md here.",
    )
    badge: Path | None = option(
        None, metavar="FILE.svg", help="Write a badge for a README to this file."
    )
    provider: ProviderChoice = option(
        ProviderChoice.AUTO,
        help="Provider that starts the package: a container, or a process, which does not "
        "isolate. By default a container if an engine is installed.",
    )


@dataclass(frozen=True)
class ImageOptions:
    """The options of the image's build."""

    base: str | None = option(
        None, metavar="IMAGE", help="Base image of the build, as for `openenv build`."
    )
    network: str | None = option(
        None, metavar="NAME", help="Network of the build steps, as for `openenv build`."
    )
    ca_file: Path | None = option(
        None, metavar="FILE", help="CA certificates for the build, as for `openenv build`."
    )


@takes_options
def validate(
    *,
    asked: ValidateOptions,
    image: ImageOptions,
    openenv: Path | None = option(
        None,
        metavar="PATH|running|locked",
        help="OpenEnv in the image, as for `openenv build`.",
    ),
) -> None:
    """Check an environment for training, and report the faults to fix.

    The exit code is 0 if the verdict is pass or warn, 1 if it is fail, 2 if TARGET is no package
    that can be validated, and 3 after any other error.

    Examples:
        openenv validate echo --level static --skip-build
        openenv validate --url http://localhost:8000  # the routes of a running server
    """
    address = _address(asked.target, asked.url, asked.local)
    if address is not None:
        _inspect_server(address, asked)
        return
    if asked.target is not None and parse_target(asked.target).kind is TargetKind.IMAGE:
        _inspect_image(asked.target, asked)
        return
    formats = [one.strip() for one in (asked.report or "").split(",") if one.strip()]
    for one in formats:
        if one not in FORMATS:
            raise unknown_name(f"--report knows no {one!r}", one, FORMATS)
    check_openenv(openenv)
    with _report_errors():
        from openenv.images import BuildOptions, LockOptions
        from openenv.validation.pages import Page
        from openenv.validation.report import write_report
        from openenv.validation.static.builds import BuildSettings
        from openenv.validation.targets import find_package

        found = find_package(asked.target or ".")
        if not asked.skip_build:
            _check_lock(found, openenv)
        options = BuildOptions(network=image.network, ca_file=image.ca_file)
        locking = LockOptions(openenv, ca_file=image.ca_file)
        validation = _run_validation(found, asked, BuildSettings(image.base, options, locking))
        page = Page(
            validation.report,
            validation.policy,
            validation.scores,
            validation.provider,
            validation.seconds,
        )
        _write(page, validation, asked, formats)
    if asked.as_json:
        sys.stdout.write(printable(write_report(validation.report)))
    else:
        _show(page)
    if validation.report.verdict.value == "fail":
        raise typer.Exit(FAILED)


def _address(target: str | None, url: str | None, local: bool) -> str | None:
    """Return the address of the server to check, or None for a package."""
    if url is not None and (target is not None or local):
        what = "TARGET" if target is not None else "--local"
        raise CommandError(f"{what} and --url exclude each other")
    if target is not None and parse_target(target, local_files=True).kind is TargetKind.SERVER:
        if local:
            raise CommandError(f"--local wants a package, and {target} is a server")
        return target
    if url is not None and parse_target(url).kind is not TargetKind.SERVER:
        raise CommandError(f"--url {url} is not an address", hint=f"write --url http://{url}")
    return url


def level_of(name: str, learn: bool) -> Level:
    """Return the level with this name."""
    from openenv.validation.types import Level

    if learn:
        return Level.STATISTICAL
    known = {one.name.lower(): one for one in Level if one is not Level.STATISTICAL}
    if name not in known:
        error = unknown_name(f"there is no level {name!r}", name, known)
        error.exit_code = INTERNAL
        raise error
    return known[name]


@contextmanager
def _report_errors() -> Iterator[None]:
    """Convert errors to `CommandError`, with the exit codes of RFC 008."""
    from openenv.errors import OpenEnvError
    from openenv.validation.signature import SignatureError, UnsupportedPackageError
    from openenv.validation.targets import PackageNotFound

    try:
        yield
    except CommandError:
        raise
    except (SignatureError, UnsupportedPackageError, PackageNotFound) as error:
        hint = "an environment has an openenv.yaml: `openenv init NAME` writes one"
        raise CommandError(
            str(error),
            hint=None if isinstance(error, UnsupportedPackageError) else hint,
            exit_code=NO_PACKAGE,
        ) from error
    except OpenEnvError as error:
        raise CommandError(str(error), exit_code=INTERNAL) from error
    except Exception as error:  # any other error is not a verdict
        raise CommandError(f"{type(error).__name__}: {error}", exit_code=INTERNAL) from error


# ------------------------------------------------------------------ a package


def _check_lock(package: Path, openenv: Path | None) -> None:
    """Compare the locked OpenEnv with the running one before a long build."""
    from openenv.images import BuildError, read_plan

    try:
        plan = read_plan(package, default_dockerfile=own_dockerfile())
    except BuildError:
        return  # a check of the static level reports this error
    if plan.dockerfile.is_locked:
        try:
            check_lock(plan, openenv)
        except BuildError as error:
            raise CommandError(str(error), hint=error.hint, exit_code=INTERNAL) from error


def _run_validation(target: Path, asked: ValidateOptions, build: BuildSettings) -> Validation:
    from openenv.cli._progress import display
    from openenv.validation.policy import load_policy, read_policy
    from openenv.validation.providers import choose_provider
    from openenv.validation.runner import artifacts_directory
    from openenv.validation.runner import validate as run
    from openenv.validation.types import Level

    level, policy = level_of(asked.level, asked.learn), None
    if asked.policy is not None:
        is_file = asked.policy.endswith(".json")
        policy = read_policy(Path(asked.policy)) if is_file else load_policy(asked.policy)
    with display() as shown:
        has_begun = False

        def progress(check_id: str, done: int, total: int, words: str) -> None:
            nonlocal has_begun
            if not has_begun:
                shown.begin("validating", total)
                has_begun = True
            shown.update(done, check_id or words)

        provider = artifacts = None
        if level > Level.STATIC:
            provider = choose_provider(
                asked.provider.value, skip_build=asked.skip_build, settings=build, tell=say
            )
            artifacts = None if asked.output is None else artifacts_directory(asked.output)
        validation = run(
            target,
            max_level=level,
            skip_build=asked.skip_build,
            policy=policy,
            provider=provider,
            artifacts_dir=artifacts,
            build=build,
            progress=progress,
        )
        shown.finish(f"{len(validation.report.results)} checks")
    return validation


def _write(page: Page, validation: Validation, asked: ValidateOptions, formats: list[str]) -> None:
    from openenv.validation.pages import draw_badge, html_page, markdown_page
    from openenv.validation.report import write_report

    if asked.output is not None:
        write_report(validation.report, asked.output)
        say(f"wrote {asked.output}")
    stem = (asked.output or Path("validation.json")).with_suffix("")
    for name in formats:
        text = html_page(page) if name == "html" else markdown_page(page)
        path = stem.with_name(f"{stem.name}.{name}")
        path.write_text(text, encoding="utf-8")
        say(f"wrote {path}")
    if asked.badge is not None:
        asked.badge.parent.mkdir(parents=True, exist_ok=True)
        asked.badge.write_text(draw_badge(page.report.verdict, page.scores), encoding="utf-8")
        say(f"wrote {asked.badge}")


def _show(page: Page) -> None:
    """Print the report for people; results with the same reason are printed once."""
    from rich.text import Text

    from openenv.validation.pages import format_score

    console = terminal(highlight=False, soft_wrap=True)
    console.print(Text(f"Validation of {page.name} ({page.report.target})", style="bold"))
    run_by = f", run by: {page.provider}" if page.provider else ""
    console.print(
        Text(f"  policy {page.report.policy_version}, levels: {', '.join(page.levels)}{run_by}")
    )
    for alike in _group_alike(page.report.results):
        _show_results(console, alike)
    shown = [
        f"{one.property.value} {format_score(one.value)}"
        for one in page.scores.properties
        if one.value is not None
    ]
    console.print(Text(f"Score: {format_score(page.scores.total)} of 100 ({', '.join(shown)})"))
    verdict = page.report.verdict.value
    console.print(Text.assemble("Verdict: ", (verdict.upper(), STYLES[verdict])))
    if verdict == "warn":
        for words in _why_it_warns(page.report.results):
            console.print(
                Text(textwrap.fill(words, 88, initial_indent="  ", subsequent_indent=" " * 4))
            )


def _why_it_warns(results: Sequence[CheckResult]) -> Iterator[str]:
    """Name the checks that turn a pass into a warning."""
    for status, why in (
        ("fail", "did not pass"),
        ("skip", "could not be made, and so show nothing"),
    ):
        ids = [result.check_id for result in results if result.status.value == status]
        if ids:
            checks = "1 check" if len(ids) == 1 else f"{len(ids)} checks"
            yield f"it warns because {checks} {why}: {', '.join(ids)}"


def _group_alike(results: Sequence[CheckResult]) -> list[list[CheckResult]]:
    """Group results with the same reason, in the order of the first of each group."""
    groups: dict[object, list[CheckResult]] = {}
    for result in results:
        has_reason = result.status.value != "pass" and result.evidence
        reason = (result.status, *result.evidence, result.remediation)
        groups.setdefault(reason if has_reason else result.check_id, []).append(result)
    return list(groups.values())


def _show_results(console: Console, alike: Sequence[CheckResult]) -> None:
    from rich.text import Text

    result = alike[0]
    status = result.status.value
    ids = textwrap.fill(", ".join(one.check_id for one in alike), 88, subsequent_indent=" " * 8)
    line = Text.assemble("  ", (f"{status.upper():<5}", STYLES[status]), f" {ids}", style="")
    line.append(f"  {sum(one.duration_s for one in alike):.2f} s", style="dim")
    console.print(line)
    for place in _places(result, "warnings"):
        console.print(Text.assemble("        ", ("warning: ", "bold yellow"), str(place)))
    if status == "pass":
        return
    places = _places(result, "problems")
    for place in places:
        console.print(Text(f"        {place}"))
        for words in place.excerpt():
            console.print(Text(f"          {words}", style="dim"))
    for words in () if places else result.evidence[:EVIDENCE]:
        console.print(Text(textwrap.indent(words, " " * 8)))
    if not places and len(result.evidence) > EVIDENCE:
        console.print(Text(f"        and {len(result.evidence) - EVIDENCE} more, see --json"))
    for number, words in enumerate((result.remediation or "").splitlines()):
        mark = "hint: " if number == 0 else "      "
        console.print(Text.assemble("        ", (mark, "bold cyan"), words))


def _places(result: CheckResult, key: str) -> list[ManifestProblem]:
    """Return the manifest problems of the check, with places."""
    from openenv.manifest import ManifestProblem

    if result.check_id != "static.manifest":
        return []
    return [ManifestProblem(**place) for place in result.measured.get(key, ())]


# ------------------------------------------------------------------ a server


def _inspect_server(url: str, asked: ValidateOptions) -> None:
    import json

    from openenv.cli._info import check_answers
    from openenv.validation.server_criteria import inspect_server

    if not asked.as_json and asked.output is None:  # only programs want a report without answers
        check_answers(url, asked.timeout)
    report = inspect_server(url, timeout_s=asked.timeout)
    if asked.output is not None:
        asked.output.parent.mkdir(parents=True, exist_ok=True)
        asked.output.write_text(json.dumps(report.as_data(), indent=2) + "\n", encoding="utf-8")
        say(f"wrote {asked.output}")
    if asked.as_json:
        emit(report.as_data())
    else:
        _show_server(report)
    if not report.passed:
        raise typer.Exit(FAILED)


def _inspect_image(target: str, asked: ValidateOptions) -> None:
    """Start an image's server and check the routes, since the package's files are absent."""
    from openenv.cli._info import serve_temporarily
    from openenv.errors import OpenEnvError

    if asked.local:
        raise CommandError(f"--local expects a package, and {target} is an image")
    try:
        with serve_temporarily(target) as url:
            _inspect_server(url, asked)
    except OpenEnvError as error:
        raise CommandError(str(error), exit_code=INTERNAL) from error


def _show_server(report: ServerReport) -> None:
    from rich.text import Text

    console = terminal(highlight=False, soft_wrap=True)
    console.print(Text(f"Server at {report.target} ({report.profile})", style="bold"))
    console.print(Text(f"  version {report.version}, mode {report.mode}"))
    for one in report.criteria:
        status = "pass" if one.passed else "fail"
        console.print(
            Text.assemble("  ", (f"{status.upper():<5}", STYLES[status]), f" {one.id}", style="")
        )
        if not one.passed:
            if one.details is not None:
                console.print(Text(f"        {one.details}"))
            console.print(Text(f"        expected {dict(one.expected)}"))
            if one.actual is not None:
                console.print(Text(f"        found {dict(one.actual)}"))
    verdict = "pass" if report.passed else "fail"
    console.print(Text.assemble("Verdict: ", (verdict.upper(), STYLES[verdict])))
