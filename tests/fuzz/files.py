"""Files of others: manifests, recordings, tasks, rollouts, results, catalogues, snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fuzz.expanding import expanded, repeated
from fuzz.workbench import Workbench
from openenv.errors import InvalidSnapshot, NotSupported, OpenEnvError
from openenv.evals.results import load_evaluation
from openenv.hub.catalog.cards import load_catalog
from openenv.hub.front_matter import FrontMatter
from openenv.manifest.checking import check_text, migrate_manifest
from openenv.manifest.reading import read_document
from openenv.protocol.snapshots import JOURNAL, read_journal, unwrap, wrap
from openenv.rollouts.files import read_rollouts
from openenv.rollouts.replays import read, read_header
from openenv.rollouts.replays.replaying import replay
from openenv.tasks import load_tasks
from openenv.validation.report import read_report

MOST = 200  # of what a file holds, so much is looked at


class Reader:
    """Writes an input to a file and reads it; a refusal is an `OpenEnvError` in words.

    Args:
        folder: Where the file is written.
        name: What it is called.
        read: Reads it, and gives what it holds.
    """

    def __init__(self, folder: Path, name: str, read: Callable[[Path], Iterable[Any]]) -> None:
        self._path = folder / name
        self._read = read

    def __call__(self, data: bytes) -> bytes:
        self._path.write_bytes(expanded(data))
        told = []
        try:
            for number, found in enumerate(self._read(self._path)):
                told.append(repr(found)[:10_000])
                if number == MOST:
                    break
        except OpenEnvError as error:
            told.append(str(error))
        return "\n".join(told).encode(errors="replace")


# ------------------------------------------------------------------ how each is read


def read_manifest(path: Path) -> Iterable[Any]:
    text = path.read_bytes().decode(errors="replace")
    checked = check_text(text)
    yield checked.errors
    yield checked.warnings
    yield [str(problem) for problem in (*checked.errors, *checked.warnings)]
    yield read_document(path).content
    yield migrate_manifest(text)


def read_readme(path: Path) -> Iterable[Any]:
    text = path.read_bytes().decode(errors="replace")
    matter = FrontMatter(text)
    yield matter.values
    for key, value in (("title", "A: 'b'"), ("sdk", "docker"), ("app_port", 8000)):
        matter.set(key, value)
    matter.add("tags", "openenv")
    again = FrontMatter(matter.text).values
    assert (again["title"], again["app_port"]) == ("A: 'b'", 8000), again
    assert again["tags"][-1] == "openenv", again


def read_recording(path: Path) -> Iterable[Any]:
    yield read_header(path)
    yield from read(path)


def play_recording(path: Path) -> Iterable[Any]:
    """Play what is recorded in an environment that the user names, and in the one it names."""
    yield replay(path, Workbench)
    yield replay(path)


def read_taskset(path: Path) -> Iterable[Any]:
    tasks = load_tasks(str(path))
    yield tasks.fingerprint
    yield from tasks


def read_run(path: Path) -> Iterable[Any]:
    yield from read_rollouts(path)


def read_result(path: Path) -> Iterable[Any]:
    yield load_evaluation(path)


def read_validation(path: Path) -> Iterable[Any]:
    yield read_report(path)


def read_catalog(path: Path) -> Iterable[Any]:
    yield load_catalog(path)


def read_snapshot(path: Path) -> Iterable[Any]:
    """Read a snapshot as it is, and what is in it as a journal."""
    data = path.read_bytes()
    for one in (data, wrap(JOURNAL, data)):
        try:
            _, body = unwrap(one)
            yield from read_journal(body, 1)
        except (InvalidSnapshot, NotSupported) as error:
            yield str(error)


READERS: dict[str, tuple[str, Callable[[Path], Iterable[Any]]]] = {
    "manifest": ("openenv.yaml", read_manifest),
    "readme": ("README.md", read_readme),
    "recording": ("recording.jsonl", read_recording),
    "replay": ("recording.jsonl", play_recording),
    "tasks": ("tasks.jsonl", read_taskset),
    "rollouts": ("rollouts.jsonl", read_run),
    "result": ("result.json", read_result),
    "report": ("report.json", read_validation),
    "catalog": ("catalog.json", read_catalog),
    "snapshot": ("episode.snapshot", read_snapshot),
}


# ------------------------------------------------------------------ what they begin with


def seeds(name: str) -> list[bytes]:
    """What grows large, in the language of a target; files of each are in ``corpus/``."""
    if name == "manifest":
        return [
            repeated(b"[", b"a: "),
            repeated(b"a%d: {b: c}\n", b"spec_version: 1\nname: a\n"),
            repeated(b"- &a%d [x]\n", b"a:\n"),
            b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
            b"name: !!python/object/apply:os.system [true]\n",
            b"name: 2001-99-99\nport: 0x1F\nruntime: ~\n? [a, b]\n: c\n<<: {a: b}\n",
        ]
    if name == "readme":
        return [
            b"---\ntitle: a\n---\n",
            repeated(b"[", b"---\na: ", b"\n---\n"),
            repeated(b"a%d: b\n", b"---\n", b"---\n"),
            b"---\na: &a [x, x]\nb: &b [*a, *a]\ntags: *b\n---\n",
            b"---\na: 2001-99-99\n? [a]\n: b\n---\n",
        ]
    if name == "snapshot":
        return [repeated(b"\x91", b"OE"), repeated(b"\xc0", b"\x82\xa8protocol\x01\xa7entries\xdd")]
    return [
        repeated(b"["),
        repeated(b'"%d":1,', b"{", b'"x":2}'),
        repeated(b"9", b'{"version":', b"}"),
        repeated(b"\n", b"{}"),
    ]
