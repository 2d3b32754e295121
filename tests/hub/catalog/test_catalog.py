"""Catalogues: of what is committed, unchanged since, searched, and as pages of foreign text."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, cast

import pytest
from playwright.sync_api import Browser, Page, ViewportSize
from support import browsers
from support.commands import COMMAND, environ, run_openenv
from support.packages import write
from support.zygote import PythonProcess

from openenv.hub.catalog import (
    CatalogError,
    CatalogSnapshot,
    build_catalog,
    compare_catalogs,
    load_catalog,
    resolve_entry,
    search_catalog,
    write_catalog,
    write_site,
)
from openenv.hub.catalog.site import create_site_server

ROOT = Path(__file__).resolve().parents[2]
OTHER_LOOKS = pytest.mark.extended("other widths and schemes are audited alike")
URI = "https://git.example/us/envs.git"

PARROT = """\
name: parrot_env
version: 0.2.0
description: Says what it is told
action: Squawk
observation: Heard
validation:
  reward: {floor_margin: 0.5}
  resources: {cpu: 1, memory_mb: 64, disk_mb: 64, episode_timeout_s: 60}
  capabilities:
    verifier: {kind: reward_channel}
    declared_tools: [repeat]
    declared_task_count: {train: 3}
  types: {tags: [bird, game]}
"""
MODELS = """
from typing import ClassVar
from openenv.types import Action, Observation
raise SystemExit("nobody imports this")
class Sound(Action):
    loud: bool = False
class Squawk(Sound):
    limit: ClassVar[int] = 3
    word: str = Field(..., description="What to <b>say</b>.")
    times: int = Field(default=1, ge=1)
class Heard(Observation):
    words: list[str] = Field(default_factory=list)
"""
README = """\
---
title: "The parrot"
license: mit
---
# The parrot

![openenv validate](badge.svg)
![outside](../secret.png)
![elsewhere](https://tracker.example/pixel.png)

<img src="pic ture.svg" alt="No such file" width="3">

![A bird](bird.svg)

<script>alert(1)</script> <img src=x onerror=alert(2)>

[bad](javascript:alert(3)) [file](models.py) [good](https://example.com/)

| a | b |
| - | - |
| 1 | <i>2</i> |
"""
BADGE = "<svg xmlns='http://www.w3.org/2000/svg'><title>openenv validate: pass 97</title></svg>"


def git(directory: Path, *arguments: str) -> None:
    who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.invalid"]
    subprocess.run(["git", *who, *arguments], cwd=directory, check=True, capture_output=True)


def commit(directory: Path) -> None:
    git(directory, "add", "-A")
    git(directory, "commit", "-q", "-m", "All of it")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with three environments, of which one is broken."""
    directory = tmp_path / "repository"
    bird = "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><circle r='9'/></svg>"
    write(
        directory,
        {
            "secret.png": "secret",
            "pyproject.toml": '[project]\nname = "all"\nlicense = "BSD-3-Clause"\n',
            "envs/secret.png": "secret",
            "envs/parrot_env/openenv.yaml": PARROT,
            "envs/parrot_env/models.py": MODELS,
            "envs/parrot_env/README.md": README,
            "envs/parrot_env/badge.svg": BADGE,
            "envs/parrot_env/bird.svg": bird,
            "envs/heron_env/openenv.yaml": "name: heron_env\ndescription: <b>A heron</b>\n",
            "envs/heron_env/models.py": "class Broken(:\n",
            "envs/broken_env/openenv.yaml": "name: broken_env\nport: 0\n",
            "envs/notes/README.md": "No environment.\n",
        },
    )
    git(directory, "init", "-q")
    commit(directory)
    return directory


@pytest.fixture
def catalog(repository: Path) -> CatalogSnapshot:
    return build_catalog(repository, repository_uri=URI, publisher="us")


# ------------------------------------------------------------------ building


def test_a_card_says_what_the_files_say(catalog: CatalogSnapshot) -> None:
    card = resolve_entry(catalog, "openenv/parrot_env")
    assert (card.title, card.version, card.license) == ("The parrot", "0.2.0", "mit")
    assert (card.tags, card.tools, card.tasks) == (("bird", "game"), ("repeat",), {"train": 3})
    assert (card.verified, card.picture) == ("pass 97", "envs/parrot_env/bird.svg")
    assert (card.provider, card.artifact_availability) == ("git", "resolvable")


def test_models_are_read_and_never_imported(catalog: CatalogSnapshot) -> None:
    card = resolve_entry(catalog, "parrot_env")
    assert card.action is not None and card.observation is not None
    assert [(field.name, field.default) for field in card.action.fields] == [
        ("loud", "False"),
        ("word", None),
        ("times", "1"),
    ]
    assert card.action.fields[1].description == "What to <b>say</b>."
    assert (card.observation.name, card.observation.fields[0].type) == ("Heard", "list[str]")


def test_what_an_environment_does_not_say_its_repository_may(catalog: CatalogSnapshot) -> None:
    card = resolve_entry(catalog, "heron_env")
    assert (card.license, card.action, card.verified) == ("BSD-3-Clause", None, None)


def test_a_broken_manifest_is_left_out_and_named(catalog: CatalogSnapshot) -> None:
    (issue,) = catalog.issues
    assert issue.path == "envs/broken_env" and "openenv.yaml:2:7: port" in issue.message


def test_only_what_is_committed_counts(repository: Path, catalog: CatalogSnapshot) -> None:
    (repository / "envs/parrot_env/openenv.yaml").write_text("name: changed\n")
    (repository / "envs/new_env").mkdir()
    (repository / "envs/new_env/openenv.yaml").write_text("name: new_env\n")
    again = build_catalog(repository, repository_uri=URI, publisher="us")
    assert again == catalog
    commit(repository)
    later = build_catalog(repository, repository_uri=URI, publisher="us")
    assert {card.name for card in later.entries} == {"changed", "heron_env", "new_env"}
    old = build_catalog(repository, repository_uri=URI, publisher="us", revision="HEAD~1")
    assert old == catalog


def test_links_are_not_followed(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("secret")
    (repository / "envs/parrot_env/README.md").unlink()
    (repository / "envs/parrot_env/README.md").symlink_to(tmp_path / "passwd")
    commit(repository)
    card = resolve_entry(
        build_catalog(repository, repository_uri=URI, publisher="us"), "parrot_env"
    )
    assert card.readme is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"revision": "nowhere"}, "cannot be read"),
        ({"revision": "--upload-pack=x"}, "cannot be read"),
        ({"root": "nowhere"}, "no directory 'nowhere'"),
        (
            {"repository_uri": "https://me:hush@git.example/x"},
            "holds a password; write https://git",
        ),
    ],
)
def test_what_cannot_be_read_says_why(repository: Path, options: dict[str, str], says: str) -> None:
    with pytest.raises(CatalogError) as caught:
        build_catalog(repository, **{"repository_uri": URI, "publisher": "us", **options})
    assert says in str(caught.value) and "hush" not in str(caught.value)


# ------------------------------------------------------------------ the file


def test_a_catalogue_is_read_as_it_was_written(catalog: CatalogSnapshot, tmp_path: Path) -> None:
    write_catalog(catalog, tmp_path / "a" / "c.json")
    assert load_catalog(tmp_path / "a" / "c.json") == catalog


def test_two_catalogues_of_one_repository_are_compared(
    repository: Path, catalog: CatalogSnapshot
) -> None:
    (repository / "envs/parrot_env").rename(repository / "envs/macaw_env")
    (repository / "envs/heron_env/openenv.yaml").write_text("name: heron_env\nversion: 2\n")
    commit(repository)
    later = build_catalog(repository, repository_uri=URI, publisher="us")
    changes = compare_catalogs(catalog, later)
    told = [[c.identifier for c in cards] for cards in (changes.added, changes.withdrawn)]
    assert told == [["openenv/macaw_env"], ["openenv/parrot_env"]]
    assert [card.version for card in changes.changed] == ["2"]
    with pytest.raises(CatalogError, match="cannot be compared"):
        compare_catalogs(catalog, later.model_copy(update={"publisher": "them"}))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c["entries"][0].update(description="better"), "was changed after it was made"),
        (lambda c: c.update(digest=""), "says none"),
        (lambda c: c.update(profile_version="2"), "profile_version '2'; expected '1'"),
        (lambda c: c["entries"][0].pop("name"), "is not a catalog: entries.0.name"),
    ],
)
def test_a_catalogue_that_was_changed_is_refused(
    catalog: CatalogSnapshot, tmp_path: Path, change: Callable[[Any], None], says: str
) -> None:
    content = json.loads(catalog.model_dump_json())
    change(content)
    (tmp_path / "c.json").write_text(json.dumps(content))
    with pytest.raises(CatalogError) as caught:
        load_catalog(tmp_path / "c.json")
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "[" * 90_000, "{"])
def test_what_is_no_catalogue_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(CatalogError):
        load_catalog(tmp_path / "c.json")
    with pytest.raises(CatalogError, match="cannot be read"):
        load_catalog(tmp_path / "nowhere.json")


# ------------------------------------------------------------------ searching


def found(catalog: CatalogSnapshot, query: str, **filters: str) -> list[str]:
    return [match.entry.name for match in search_catalog(catalog.entries, query, filters=filters)]


def test_a_search_ranks_by_words(catalog: CatalogSnapshot) -> None:
    assert found(catalog, "") == ["heron_env", "parrot_env"]
    assert found(catalog, "PARR") == ["parrot_env"]
    assert found(catalog, "game told") == ["parrot_env"]
    assert found(catalog, "game heron") == []


def test_filters_are_exact(catalog: CatalogSnapshot) -> None:
    assert found(catalog, "", tags="Bird") == ["parrot_env"]
    assert found(catalog, "", tags="bir") == []
    assert found(catalog, "", license="mit", name="parrot_env") == ["parrot_env"]
    with pytest.raises(CatalogError, match="did you mean license"):
        found(catalog, "", licence="mit")


def test_an_unknown_identifier_says_which_was_meant(catalog: CatalogSnapshot) -> None:
    with pytest.raises(CatalogError, match="did you mean openenv/parrot_env"):
        resolve_entry(catalog, "openenv/parot_env")


# ------------------------------------------------------------------ the site


@pytest.fixture
def site(repository: Path, tmp_path: Path) -> Path:
    write_site(repository, tmp_path / "site", repository_uri=URI, publisher="us")
    return tmp_path / "site"


def test_foreign_text_is_escaped(site: Path) -> None:
    page = (site / "parrot_env/index.html").read_text()
    for evil in (
        "<script>alert",
        "<img src=x",
        'href="javascript:',
        'tracker.example/pixel.png"',
        "<i>2",
    ):
        assert evil not in page
    assert "&lt;script&gt;" in page and "What to &lt;b&gt;say&lt;/b&gt;." in page
    assert "<b>A heron" not in (site / "index.html").read_text()


def test_only_pictures_of_the_environment_itself_are_copied(site: Path) -> None:
    names = {entry.name for entry in (site / "parrot_env").iterdir()}
    assert names == {"index.html", "badge.svg", "bird.svg"}


def test_a_site_is_replaced_and_nothing_else_is(repository: Path, site: Path) -> None:
    git(repository, "rm", "-rq", "envs/parrot_env")
    commit(repository)
    write_site(repository, site)
    assert not (site / "parrot_env").exists()
    with pytest.raises(CatalogError, match="holds other files"):
        write_site(repository, repository)


def test_the_server_has_the_pages_and_lists_no_directory(site: Path) -> None:
    with create_site_server(site, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        with urllib.request.urlopen(f"{url}/parrot_env/index.html") as answer:
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        with urllib.request.urlopen(f"{url}/parrot_env/bird.svg?x") as answer:
            assert answer.headers["Content-Security-Policy"].endswith("sandbox")
        (site / "empty").mkdir()
        for path in ("/empty/", "/../repository/secret.png", "/%2e%2e/repository/secret.png"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(url + path)
            caught.value.close()
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browsers.chromium() as browser:
        yield browser


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page; whatever it logs, or asks for elsewhere than on the disk, fails the test."""
    wrong: list[str] = []
    context = chromium.new_context(viewport={"width": 380, "height": 800})
    opened = context.new_page()
    opened.on("console", lambda said: wrong.append(said.text))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda r: None if r.url.startswith("file:") else wrong.append(r.url))
    yield opened
    context.close()
    assert wrong == []


@pytest.mark.extended("builds and serves a site of our own environments")
@pytest.mark.slow
@pytest.mark.blocks_the_loop
def test_the_site_works_from_the_disk(site: Path, page: Page) -> None:
    page.goto((site / "index.html").as_uri())
    page.get_by_text("2 of 2 shown").wait_for()
    page.get_by_label("Search").fill("parrot told")
    page.get_by_text("1 of 2 shown").wait_for()
    page.reload()
    page.get_by_text("1 of 2 shown").wait_for()
    page.get_by_label("Search").fill("")
    page.get_by_label("validated only").check()
    page.get_by_text("1 of 2 shown").wait_for()
    page.get_by_label("Licence").select_option("BSD-3-Clause")
    page.get_by_text("None fits").wait_for()
    page.get_by_label("Licence").select_option("mit")
    page.get_by_role("link", name="The parrot").click()
    page.get_by_role("heading", name="The parrot").wait_for()
    wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not wide and page.locator("img[src='bird.svg']").evaluate("i => i.naturalWidth") == 9


@pytest.mark.extended("builds and serves a site of our own environments")
@pytest.mark.slow
@pytest.mark.blocks_the_loop
def test_our_own_environments_make_a_site(tmp_path: Path, page: Page) -> None:
    snapshot = write_site(ROOT, tmp_path / "ours")
    assert not snapshot.issues and len(snapshot.entries) >= 13
    for card in snapshot.entries:
        name = Path(card.path).name
        page.goto((tmp_path / "ours" / name / "index.html").as_uri())
        assert page.evaluate("[...document.images].every((image) => image.alt)"), name
        page.evaluate(
            """Promise.all([...document.images].map((image) => {
                image.loading = "eager";
                return image.decode();
            }))"""
        )


@pytest.mark.slow
@pytest.mark.compat
@pytest.mark.blocks_the_loop
@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (360, "dark"),
        pytest.param(1280, "dark", marks=OTHER_LOOKS),
        pytest.param(360, "light", marks=OTHER_LOOKS),
        pytest.param(1280, "light", marks=OTHER_LOOKS),
    ],
)
def test_axe_finds_nothing_serious(
    tmp_path: Path, chromium: Browser, scheme: Literal["light", "dark"], width: int
) -> None:
    write_site(ROOT, tmp_path / "ours")
    axe = browsers.axe_core()
    viewport = ViewportSize(width=width, height=800)
    with chromium.new_context(color_scheme=scheme, viewport=viewport) as context:
        page = context.new_page()
        for path in ("index.html", "chess_env/index.html", "coding_env/index.html"):
            page.goto((tmp_path / "ours" / path).as_uri())
            assert browsers.serious_findings(page, axe) == [], path


# ------------------------------------------------------------------ the commands


@pytest.mark.extended("builds and serves a site of our own environments")
@pytest.mark.slow
def test_a_catalogue_is_built_and_searched_from_the_command_line(
    repository: Path, tmp_path: Path
) -> None:
    told = ["--repository-uri", URI, "--publisher", "us", "--output", str(tmp_path / "c.json")]
    done = run_openenv("catalog", "build", *told, "--json", cwd=repository)
    assert done.returncode == 0 and json.loads(done.stdout)["entries"] == 2
    assert "envs/broken_env was left out" in done.stderr
    where = ["--catalog", str(tmp_path / "c.json")]
    done = run_openenv("discover", "bird", *where, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["matches"][0]["entry"]["name"] == "parrot_env"
    done = run_openenv("catalog", "inspect", "openenv/heron_env", *where, cwd=tmp_path)
    assert json.loads(done.stdout)["name"] == "heron_env"
    done = run_openenv("discover", "parot", *where, cwd=tmp_path)
    assert done.returncode == 1 and "did you mean parrot?" in done.stderr
    done = run_openenv("discover", "--filter", "tags", *where, cwd=tmp_path)
    assert done.returncode == 2 and "hint: " in done.stderr


@pytest.mark.slow
def test_discover_says_that_it_looks_at_what_is_installed(tmp_path: Path) -> None:
    done = run_openenv("discover", "chess", cwd=tmp_path)
    assert "the installed environments" in done.stderr and done.stdout.startswith("chess ")


@pytest.mark.extended("builds and serves a site of our own environments")
@pytest.mark.slow
@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_site_is_served_until_it_is_stopped_and_leaves_nothing(
    repository: Path, tmp_path: Path, by: signal.Signals, code: int
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with PythonProcess(
        [*COMMAND, "catalog", "serve", "--port", "0", "--json"],
        cwd=repository,
        env=environ() | {"TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            url = json.loads(cast("Any", process.stdout).readline())["url"]
            assert url.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(url) as answer:
                assert b"The parrot" in answer.read()
        finally:
            assert list(scratch.glob("openenv-catalog-*"))
            process.send_signal(by)
    assert process.returncode == code
    assert not list(scratch.iterdir())
