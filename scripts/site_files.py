"""A hook of MkDocs that adds all files of the repository that the pages link to.

Files are named by their paths in the repository, also in the `nav` of mkdocs.yml, so that a link
that works on GitHub works on the site. Pages of `docs/` lose that prefix: `docs/guides/web.md`
becomes `/guides/web/`, and `envs/echo_env/README.md` becomes `/envs/echo_env/`. A linked file that
is not a page (a test, a Dockerfile) is copied as text that a browser displays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs/"
FRONT_PAGE = "README.md"  # the repository's; the site's is docs/index.md

# The forms of a link: [text](target), [name]: target, src="target", href="target".
LINK = re.compile(
    r"""\]\(<?([^)\s>]+)|^\[[^\]]+\]:\s*(\S+)|\b(?:src|srcset|href)="([^"]+)\"""", re.M
)
FENCE = re.compile(r"^( *)(```+).*?^\1\2$", re.DOTALL | re.MULTILINE)
COPIED_AS_IT_IS = {".css", ".gif", ".ico", ".ipynb", ".jpg", ".js", ".json", ".png", ".svg", ".txt"}


def on_files(files: Files, /, *, config: MkDocsConfig) -> Files:
    """Give the site's files their paths in the repository, and add the linked files."""
    theme = [file for file in files if Path(config.docs_dir) not in parents_of(file)]
    begun = {*files_of(files, config), *pages_in(config.nav)}
    found = closure({path for path in begun if path.is_file()})
    return Files([*theme, *(file_of(path, config) for path in sorted(found))])


def on_post_page(output: str, /, **_: object) -> str:
    """Name the search dialog for screen readers, which the theme does not."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"', 1)


def parents_of(file: File) -> list[Path]:
    """Return the directories that contain a file."""
    return list(Path(file.abs_src_path).parents) if file.abs_src_path else []


def files_of(files: Files, config: MkDocsConfig) -> Iterator[Path]:
    """Return the files in `docs/`."""
    docs = Path(config.docs_dir)
    return (Path(f.abs_src_path) for f in files if f.abs_src_path and docs in parents_of(f))


def pages_in(nav: Any) -> Iterator[Path]:
    """Yield the files in the nav, at any depth."""
    if isinstance(nav, str):
        yield ROOT / nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav or ():
            yield from pages_in(part)


def closure(paths: set[Path]) -> set[Path]:
    """Return these files, and all files of the repository that they link to, transitively."""
    found: set[Path] = set()
    while paths:
        found |= paths
        pages = [path for path in paths if path.suffix == ".md"]
        paths = {target for page in pages for target in targets_of(page)} - found
    return found


def targets_of(page: Path) -> Iterator[Path]:
    """Yield the files of the repository that a page links to."""
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    for match in LINK.finditer(prose):
        link = next(group for group in match.groups() if group)
        target = (page.parent / unquote(link.partition("#")[0])).resolve()
        if "://" not in link and target.is_file() and ROOT in target.parents:
            yield target


def file_of(path: Path, config: MkDocsConfig) -> File:
    """Return a file of the repository as a file of the site."""
    name = path.relative_to(ROOT).as_posix()
    file = File(name, str(ROOT), config.site_dir, config.use_directory_urls)
    if name == FRONT_PAGE:
        file.dest_uri = "readme/index.html"
    elif not file.is_documentation_page() and path.suffix not in COPIED_AS_IT_IS:
        file.dest_uri += ".txt"
    file.dest_uri = file.dest_uri.removeprefix(DOCS)
    return file
