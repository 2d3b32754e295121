"""`openenv catalog` and `openenv discover`: catalogs of environments, and search in them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from openenv._internal.quoting import printable
from openenv.cli._console import CommandError, MisuseError, emit, say, warn
from openenv.cli._options import argument, option, takes_options

if TYPE_CHECKING:
    from openenv.hub.catalog import EnvironmentCard

app = typer.Typer(help="List the environments of a repository, in a file and as a site.")

REPOSITORY: Path = option(
    Path(), help="Git repository with the environments; only committed files are read."
)
REVISION: str = option("HEAD", metavar="COMMIT", help="Commit, branch or tag to read.")
ROOT: str = option("envs", metavar="DIR", help="Directory of the environments in the repository.")
NAMESPACE: str = option("openenv", metavar="NAME", help="Prefix of the environments' identifiers.")
URI_HELP = "Public clone address of the repository."
PUBLISHER_HELP = "Person or organization responsible for the catalog."


@contextmanager
def _report_errors() -> Iterator[None]:
    from openenv._internal.packages import MissingPackage
    from openenv.hub.catalog import CatalogError

    try:
        yield
    except (CatalogError, MissingPackage) as error:
        raise CommandError(str(error)) from error


@app.command()
@takes_options
def build(
    repository_uri: str = option(..., metavar="URL", help=URI_HELP),
    publisher: str = option(..., metavar="NAME", help=PUBLISHER_HELP),
    output: Path = option(..., "-o", metavar="FILE", help="Write the catalog to this file."),
    repository: Path = REPOSITORY,
    revision: str = REVISION,
    root: str = ROOT,
    namespace: str = NAMESPACE,
    as_json: bool = option(
        False, "--json", help="Print the file, its digest and the number of entries as JSON."
    ),
) -> None:
    """Write a catalog of the environments committed in a repository.

    Examples:
        openenv catalog build --repository-uri https://github.com/me/envs --publisher me -o all.json
        openenv catalog build --repository-uri https://me.dev/envs --publisher me -o all.json --json
    """
    from openenv.hub.catalog import build_catalog, write_catalog

    with _report_errors():
        snapshot = build_catalog(
            repository,
            repository_uri=repository_uri,
            publisher=publisher,
            revision=revision,
            root=root,
            namespace=namespace,
        )
        write_catalog(snapshot, output)
    _warn_of_issues(snapshot)
    say(f"wrote {output}: {len(snapshot.entries)} environments of {snapshot.revision[:12]}")
    if as_json:
        emit({"path": str(output), "digest": snapshot.digest, "entries": len(snapshot.entries)})


@app.command()
@takes_options
def inspect(
    identifier: str = argument(..., help="Identifier of the environment, NAMESPACE/NAME."),
    catalog: Path = option(..., metavar="FILE", help="File written by `openenv catalog build`."),
) -> None:
    """Print an environment's card as JSON.

    Examples:
        openenv catalog inspect openenv/my_env --catalog all.json
        openenv catalog inspect openenv/my_env --catalog all.json > card.json
    """
    from openenv.hub.catalog import load_catalog, resolve_entry

    with _report_errors():
        card = resolve_entry(load_catalog(catalog), identifier)
    typer.echo(card.model_dump_json(indent=2))


@app.command()
@takes_options
def site(
    output: Path = option(..., metavar="DIR", help="Write the site to this directory."),
    repository: Path = REPOSITORY,
    repository_uri: str = option("", metavar="URL", help=URI_HELP),
    publisher: str = option("", metavar="NAME", help=PUBLISHER_HELP),
    revision: str = REVISION,
    root: str = ROOT,
    namespace: str = NAMESPACE,
) -> None:
    """Write a site of the environments, for any web server, or to open from the disk.

    Examples:
        openenv catalog site --output public
        openenv catalog site --output public --repository . --root envs --publisher me
    """
    from openenv.hub.catalog import write_site

    with _report_errors():
        snapshot = write_site(
            repository,
            output,
            repository_uri=repository_uri,
            publisher=publisher,
            revision=revision,
            root=root,
            namespace=namespace,
        )
    _warn_of_issues(snapshot)
    say(f"wrote {output / 'index.html'}: {len(snapshot.entries)} environments")


@app.command()
@takes_options
def serve(
    repository: Path = REPOSITORY,
    revision: str = REVISION,
    root: str = ROOT,
    host: str = option("127.0.0.1", help="Address to listen on."),
    port: int = option(8080, help="Port to listen on; 0 chooses a free port."),
    as_json: bool = option(False, "--json", help="Print the address as JSON."),
) -> None:
    """Serve the site of the environments until Ctrl-C, or SIGTERM.

    Examples:
        openenv catalog serve
        openenv catalog serve --revision v1.0 --port 0  # on a free port
    """
    from openenv.hub.catalog import write_site
    from openenv.hub.catalog.site import create_site_server

    with tempfile.TemporaryDirectory(prefix="openenv-catalog-") as directory, _report_errors():
        write_site(repository, directory, revision=revision, root=root)
        with create_site_server(Path(directory), host, port) as server:
            url = f"http://{host}:{server.server_port}/"
            say(f"the catalog is at {url}")
            if as_json:
                emit({"url": url})
            server.serve_forever()


@takes_options
def discover(
    query: str = argument("", help="Keywords; without any, all environments are listed."),
    catalog: Path | None = option(
        None,
        metavar="FILE",
        help="File written by `openenv catalog build`; by default the installed environments.",
    ),
    limit: int = option(20, min=1, max=1000, help="Maximum number of results."),
    filters: list[str] | None = option(
        None,
        "--filter",
        metavar="FIELD=VALUE",
        help="Show only environments whose field has this value: license, provider, "
        "artifact_availability, name, tags, or type. Repeatable.",
    ),
    as_json: bool = option(False, "--json", help="Print the matches as JSON."),
) -> None:
    """Find environments by keywords, among the installed ones or in a catalog.

    Examples:
        openenv discover chess --filter tags=game
        openenv discover --catalog all.json --limit 5
    """
    from openenv.hub.catalog import load_catalog
    from openenv.hub.catalog.building import list_installed_cards
    from openenv.hub.catalog.searching import did_you_mean, search_catalog

    wanted = {}
    for text in filters or ():
        name, sign, value = text.partition("=")
        if not sign:
            raise MisuseError(f"--filter {text} has no value", hint="write --filter tags=game")
        wanted[name] = value
    with _report_errors():
        if catalog is None:
            cards, where = list_installed_cards(), "the installed environments"
        else:
            cards, where = list(load_catalog(catalog).entries), str(catalog)
        matches = search_catalog(cards, query, filters=wanted, limit=limit)
    if not matches:
        close = did_you_mean(cards, query)
        hint = f"did you mean {close}?" if close else None
        raise CommandError(f"nothing in {where} fits {query!r}", hint=hint)
    if as_json:
        emit({"source": where, "matches": [match.model_dump(mode="json") for match in matches]})
        return
    say(f"{len(matches)} of {len(cards)} in {where}")
    for match in matches:
        typer.echo(_format_card(match.entry))


def _warn_of_issues(snapshot: Any) -> None:
    for issue in snapshot.issues:
        warn(f"warning: {issue.path} was left out: {issue.message}")


def _format_card(card: EnvironmentCard) -> str:
    marks: list[Any] = [", ".join(card.tags), card.license, card.verified and f"{card.verified}"]
    told = "; ".join(mark for mark in marks if mark and mark != "unknown")
    return printable(f"{card.identifier:<28} {card.description}{f' ({told})' if told else ''}")
