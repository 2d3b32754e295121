"""The front matter of a README is edited in its place, and nothing else of the README is."""

from __future__ import annotations

import pytest

from openenv.hub import StructureError
from openenv.hub.front_matter import FrontMatter, complete_front_matter

README = """\
---
title: "My game"  # as people know it
emoji: 🎮
tags:
    - games   # and more
sdk: docker
---
# My game

---

Below a line of dashes: base_path is no word to be touched.

---
"""
MANIFEST = {"name": "my_game_env", "port": 8004}


def test_what_a_space_needs_is_added_and_the_rest_stays() -> None:
    text, changes = complete_front_matter(README, MANIFEST, interface=True)
    assert text == README.replace(
        "    - games   # and more\n", "    - games   # and more\n    - openenv\n"
    ).replace("sdk: docker\n", "sdk: docker\napp_port: 8004\nbase_path: /web\n")
    assert changes == [
        'README.md: tags: ["games", "openenv"]',
        "README.md: app_port: 8004",
        'README.md: base_path: "/web"',
    ]
    assert complete_front_matter(text, MANIFEST, interface=True) == (text, [])


def test_a_readme_without_front_matter_gets_one() -> None:
    text, _ = complete_front_matter("# Hello\n\n---\nmore\n", MANIFEST, interface=True)
    assert text == (
        "---\ntitle: My Game\nsdk: docker\napp_port: 8004\nbase_path: /web\ntags:\n  - openenv\n"
        "---\n# Hello\n\n---\nmore\n"
    )
    assert complete_front_matter("", {"name": "x"}, interface=False)[0].count("---") == 2


def test_without_the_page_no_space_opens_at_it() -> None:
    shown, _ = complete_front_matter(README, MANIFEST, interface=True)
    text, changes = complete_front_matter(shown, MANIFEST, interface=False)
    assert "base_path: /web" not in text and changes == ["README.md: base_path removed"]
    own = README.replace("sdk: docker", "sdk: docker\nbase_path: /play")
    for interface in (True, False):
        assert "base_path: /play\n" in complete_front_matter(own, MANIFEST, interface=interface)[0]


@pytest.mark.parametrize(
    ("written", "after"),
    [
        ("tags: [a, b]", "tags: [a, b, openenv]"),
        ("tags: []", "tags: [openenv]"),
        ("tags:\n- a\n- b", "tags:\n- a\n- b\n- openenv"),
        ("tags:", "tags:\n  - openenv"),
        ("tags: games", "tags:\n  - openenv"),
        ("tags: [openenv]", "tags: [openenv]"),
    ],
)
def test_the_tag_is_added_to_a_list_however_it_is_written(written: str, after: str) -> None:
    front = FrontMatter(f"---\ntitle: x\n{written}\n---\n")
    if "openenv" not in (front.values.get("tags") or []):
        front.add("tags", "openenv")
    assert front.text == f"---\ntitle: x\n{after}\n---\n"


def test_a_value_is_replaced_where_it_stands() -> None:
    front = FrontMatter("---\nsdk: gradio # once\nsdk_version: 4\n---\nsdk: gradio\n")
    front.set("sdk", "docker")
    assert front.text == "---\nsdk: docker # once\nsdk_version: 4\n---\nsdk: gradio\n"
    front.set("title", "yes: it is")
    assert "\ntitle: 'yes: it is'\n---\n" in front.text


def test_the_ends_of_lines_stay_as_they_are() -> None:
    text, _ = complete_front_matter(README.replace("\n", "\r\n"), MANIFEST, interface=True)
    assert text.count("\n") == text.count("\r\n")


@pytest.mark.parametrize(
    ("matter", "said"),
    [("title: [a", r"line 3.*invalid YAML"), ("- a", "is a list"), ("just words", "is a str")],
)
def test_front_matter_that_cannot_be_read_is_said(matter: str, said: str) -> None:
    with pytest.raises(StructureError, match=said):
        FrontMatter(f"---\n{matter}\n---\n")
