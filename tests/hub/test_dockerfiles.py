"""A Dockerfile gets another base, and the page, and stays what it is otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from openenv.hub import StructureError
from openenv.hub.dockerfiles import replace_base, set_interface

TWO_STAGES = """\
ARG BASE=python:3.12-slim
FROM $BASE AS builder
RUN <<EOF
FROM nothing
EOF
FROM --platform=linux/amd64 $BASE AS runtime
COPY --from=builder /opt /opt
HEALTHCHECK CMD ["true"]
CMD ["server"]
"""


def test_only_the_final_stage_starts_from_another_base() -> None:
    assert replace_base(TWO_STAGES, "acme/base:1") == TWO_STAGES.replace(
        "--platform=linux/amd64 $BASE AS runtime", "--platform=linux/amd64 acme/base:1 AS runtime"
    )
    assert replace_base("from a as B\nCMD x", "c") == "from c as B\nCMD x"


def test_a_final_stage_without_a_base_of_its_own_is_refused() -> None:
    with pytest.raises(StructureError, match="starts from its stage builder"):
        replace_base("FROM a AS builder\nFROM builder\n", "c")
    with pytest.raises(StructureError, match="no FROM"):
        replace_base("CMD x\n", "c")


def test_the_page_is_switched_on_before_what_runs() -> None:
    on = set_interface(TWO_STAGES, True)
    assert on == TWO_STAGES.replace(
        'CMD ["server"]\n', 'ENV ENABLE_WEB_INTERFACE=true\nCMD ["server"]\n'
    )
    assert set_interface(on, True) == on
    assert set_interface("FROM a", True) == "FROM a\nENV ENABLE_WEB_INTERFACE=true\n"


def test_the_page_is_switched_off_only_where_it_is_on() -> None:
    assert set_interface(TWO_STAGES, False) == TWO_STAGES
    on = set_interface(TWO_STAGES, True)
    assert set_interface(on, False).endswith(
        'ENV ENABLE_WEB_INTERFACE=true\nENV ENABLE_WEB_INTERFACE=false\nCMD ["server"]\n'
    )
    builder = "FROM a AS b\nENV ENABLE_WEB_INTERFACE=true\nFROM c\nCMD x\n"
    assert set_interface(builder, True).count("ENABLE_WEB_INTERFACE") == 2


@pytest.mark.parametrize(
    "place", sorted(Path(__file__).parents[2].glob("envs/*/server/Dockerfile"))
)
def test_our_own_dockerfiles_can_be_changed(place: Path) -> None:
    text = place.read_text()
    changed = set_interface(replace_base(text, "acme/base:1"), True)
    assert changed.count("acme/base:1") == 1 and changed.count("ENABLE_WEB_INTERFACE=true") == 1
    assert changed.count(" AS builder") == text.count(" AS builder")
