"""Cards of environments in a repository, or of installed ones, from files alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from openenv._internal.toml import parse_toml
from openenv._internal.yaml import UnreadableYAML, read_yaml
from openenv.hub.catalog.cards import (
    CatalogError,
    CatalogIssue,
    CatalogSnapshot,
    EnvironmentCard,
    ModelCard,
    ModelField,
)
from openenv.hub.catalog.repository import GitSnapshot
from openenv.hub.discovery import EnvironmentInfo, get_discovery
from openenv.manifest import MANIFEST, Manifest
from openenv.manifest.checking import check_manifest, check_text

__all__ = [
    "PICTURES",
    "build_catalog",
    "convert_pictures",
    "list_installed_cards",
    "read_catalog",
]

PICTURES = (".svg", ".png", ".jpg", ".jpeg", ".gif", ".webp")
BADGE = "badge.svg"
MODELS = ("models.py", "client.py", "__init__.py")

_IMAGE = re.compile(r"!\[[^\]]*\]\(\s*<?([^)\s>]+)")
_HTML_IMAGE = re.compile(r'^<img src="([^"<>]+)" alt="([^"<>]*)"[^<>]*>', re.MULTILINE)
_LABEL = re.compile(r"<title>openenv validate: ([a-z]+(?: \d+)?)</title>")
_FRONT = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_HOSTS = {"github.com": "github", "gitlab.com": "gitlab", "huggingface.co": "huggingface"}


def build_catalog(
    repository: Path | str,
    *,
    repository_uri: str,
    publisher: str,
    namespace: str = "openenv",
    revision: str = "HEAD",
    root: str = "envs",
) -> CatalogSnapshot:
    """Describe the environments committed in a repository, without running code.

    Args:
        repository: A checkout, or a bare repository.
        repository_uri: Public clone address; must hold no password.
        publisher: The party responsible for the catalog.
        namespace: Prefix of identifiers.
        revision: A commit, a branch or a tag.
        root: Directory whose subdirectories are the environments.

    Raises:
        CatalogError: The repository cannot be read, or the address holds a password.
    """
    if (parsed := urlsplit(repository_uri)).password is not None:
        where = f"{parsed.scheme}://{parsed.hostname}{parsed.path}"
        raise CatalogError(f"--repository-uri holds a password; write {where}")
    source = GitSnapshot(Path(repository), revision, root)
    return read_catalog(source, repository_uri, publisher, namespace)


def read_catalog(
    source: GitSnapshot, repository_uri: str, publisher: str, namespace: str
) -> CatalogSnapshot:
    """Build a catalog from an opened repository."""
    cards, issues = [], []
    for directory in source.directories_with(MANIFEST):
        checked = check_text(source.text(f"{directory}/{MANIFEST}"))
        if checked.manifest is None:
            issues.append(CatalogIssue(path=directory, message="; ".join(map(str, checked.errors))))
        else:
            cards.append(_card(source, directory, checked.manifest, repository_uri, namespace))
    snapshot = CatalogSnapshot(
        publisher=publisher,
        namespace=namespace,
        repository_uri=repository_uri,
        revision=source.revision,
        root=source.root,
        entries=tuple(cards),
        issues=tuple(issues),
    )
    return snapshot.model_copy(update={"digest": snapshot.compute_digest()})


def _card(
    source: GitSnapshot, directory: str, manifest: Manifest, uri: str, namespace: str
) -> EnvironmentCard:
    readme = f"{directory}/README.md" if source.has(f"{directory}/README.md") else None
    text = source.text(readme) if readme else ""
    front = _front_matter(text)
    project = _project(source.text(f"{directory}/pyproject.toml"))
    badge = _LABEL.search(source.text(f"{directory}/{BADGE}"))
    parsed = urlsplit(uri)
    return EnvironmentCard(
        identifier=f"{namespace}/{PurePosixPath(directory).name}",
        name=manifest.name,
        title=str(front.get("title") or manifest.name),
        description=manifest.description or _text(project.get("description")) or manifest.name,
        type=manifest.type,
        version=manifest.version or _text(project.get("version")),
        license=manifest.license or _license(project, front, source),
        author=manifest.author,
        provider=_HOSTS.get(parsed.hostname or "", "git"),
        artifact_availability="resolvable" if parsed.scheme in ("https", "ssh") else "unknown",
        path=directory,
        package=_text(project.get("name")),
        action=_model(source, directory, manifest.action, "Action"),
        observation=_model(source, directory, manifest.observation, "Observation"),
        **_declared(manifest),
        verified=badge[1] if badge else None,
        readme=readme,
        picture=_picture(source, directory, text),
    )


def _declared(manifest: Manifest) -> dict[str, Any]:
    """Return the fields of a card that a manifest declares as lists."""
    declared = manifest.validation
    tags = [*manifest.tags, *(declared.types.tags if declared else ())]
    return {
        "tags": tuple(dict.fromkeys(tags)),
        "tools": tuple(declared.capabilities.declared_tools) if declared else (),
        "tasks": dict(declared.capabilities.declared_task_count) if declared else {},
    }


def list_installed_cards() -> list[EnvironmentCard]:
    """Describe each environment that `AutoEnv` finds, without imports."""
    return [_installed_card(info) for info in get_discovery().discover().values()]


def _installed_card(info: EnvironmentInfo) -> EnvironmentCard:
    manifest = None
    if info.directory is not None and (info.directory / MANIFEST).is_file():
        manifest = check_manifest(info.directory / MANIFEST).manifest
    return EnvironmentCard(
        identifier=info.env_key,
        name=info.name,
        title=info.name,
        description=info.description,
        type=manifest.type if manifest else "space",
        version=info.version,
        license=(manifest.license if manifest else None) or "unknown",
        provider="installed",
        artifact_availability="resolvable",
        path=str(info.directory or ""),
        package=info.package_name,
        **(_declared(manifest) if manifest else {}),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _front_matter(text: str) -> Mapping[str, Any]:
    found = _FRONT.match(text)
    try:
        content = read_yaml(found[1])[0] if found else None
    except UnreadableYAML:
        content = None
    return content if isinstance(content, dict) else {}


def _project(text: str) -> Mapping[str, Any]:
    try:
        project = parse_toml(text).get("project", {})
    except (ValueError, RecursionError):
        return {}
    return project if isinstance(project, dict) else {}


def _license(project: Mapping[str, Any], front: Mapping[str, Any], source: GitSnapshot) -> str:
    own = _text(project.get("license")) or _text(front.get("license"))
    return own or _text(_project(source.text("pyproject.toml")).get("license")) or "unknown"


def convert_pictures(readme: str) -> str:
    """Replace a README's HTML pictures by Markdown pictures."""
    return _HTML_IMAGE.sub(r"![\2](\1)", readme)


def _picture(source: GitSnapshot, directory: str, readme: str) -> str | None:
    for found in _IMAGE.finditer(convert_pictures(readme)):
        path = f"{directory}/{found[1].removeprefix('./')}"
        if not path.endswith(BADGE) and path.endswith(PICTURES) and source.has(path):
            return path
    return None


# ------------------------------------------------------------------ models, unimported


def _model(source: GitSnapshot, directory: str, name: str | None, ending: str) -> ModelCard | None:
    """Read a model's fields from source; by default the only class with this ending."""
    classes: dict[str, ast.ClassDef] = {}
    for file in MODELS:
        try:
            tree = ast.parse(source.text(f"{directory}/{file}"))
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, node)
    if name is None:
        named = [known for known in classes if known.endswith(ending)]
        name = named[0] if len(named) == 1 else None
    if name is None:
        return None
    return ModelCard(name=name, fields=tuple(_fields(classes, name, frozenset())))


def _fields(
    classes: Mapping[str, ast.ClassDef], name: str, seen: frozenset[str]
) -> Iterator[ModelField]:
    node = classes.get(name)
    if node is None or name in seen:
        return
    for base in node.bases:
        if isinstance(base, ast.Name):
            yield from _fields(classes, base.id, seen | {name})
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            kind = ast.unparse(item.annotation)
            if not item.target.id.startswith("_") and "ClassVar" not in kind:
                default, about = _default(item.value)
                yield ModelField(name=item.target.id, type=kind, default=default, description=about)


def _default(value: ast.expr | None) -> tuple[str | None, str]:
    """Return a field's default and description as written."""
    if value is None:
        return None, ""
    if not (isinstance(value, ast.Call) and ast.unparse(value.func).endswith("Field")):
        return ast.unparse(value), ""
    given = {word.arg: word.value for word in value.keywords}
    first = value.args[0] if value.args else given.get("default", given.get("default_factory"))
    about = given.get("description")
    try:
        words = str(ast.literal_eval(about)) if about is not None else ""
    except ValueError:
        words = ""
    is_required = isinstance(first, ast.Constant) and first.value is ...
    return None if first is None or is_required else ast.unparse(first), words
