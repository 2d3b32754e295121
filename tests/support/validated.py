"""A package that is right in every respect, to be spoilt in one."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MANIFEST = """\
spec_version: 1
name: lamp_env
version: 0.1.0
description: A lamp that is switched on
type: space
runtime: fastapi
app: server.app:app
port: 8000
validation:
  reward: {range: [0.0, 1.0], oracle_tolerance: 0.0, floor_margin: 0.5}
  resources: {cpu: 1, memory_mb: 512, disk_mb: 256, episode_timeout_s: 60}
  capabilities:
    verifier: {kind: reward_channel}
    oracle: {form: script, location: validation/oracle.json}
    task_api: false
  task_distribution: {generator_seed: 7}
  types: {tags: [toy]}
"""

PROJECT = """\
[project]
name = "openenv-lamp-env"
version = "0.1.0"
description = "A lamp that is switched on"
requires-python = ">=3.10"
dependencies = ["httpx>=0.28"]
"""

LOCK = """\
version = 1
requires-python = ">=3.10"

[[package]]
name = "openenv-lamp-env"
version = "0.1.0"
source = { editable = "." }

[[package]]
name = "httpx"
version = "0.28.1"
source = { registry = "https://pypi.org/simple" }
sdist = { url = "https://files.example/httpx.tar.gz", hash = "sha256:00" }
"""

DOCKERFILE = """\
FROM python:3.12-slim AS builder
COPY . /build/lamp_env
RUN python3 -m venv /opt/venv \\
    && /opt/venv/bin/pip install --no-cache-dir --require-hashes -r /build/lamp_env/lock.txt

FROM python:3.12-slim
RUN useradd --create-home --uid 1000 app
COPY --from=builder /opt/venv /opt/venv
USER 1000:1000
CMD ["/opt/venv/bin/server"]
"""

APP = '''
from openenv import Action, Environment, Observation, State, create_app


class Switch(Action):
    on: bool = False


class Light(Observation):
    is_on: bool = False


class Lamp(Environment[Switch, Light, State]):
    """A lamp: 1 for switching it on."""

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Light:
        self._state = State(episode_id=episode_id, step_count=0)
        return Light()

    def step(self, action: Switch) -> Light:
        self._state.step_count += 1
        return Light(is_on=action.on, reward=float(action.on), done=action.on)

    @property
    def state(self) -> State:
        return self._state


app = create_app(Lamp)
'''

FILES = {
    "openenv.yaml": MANIFEST,
    "pyproject.toml": PROJECT,
    "uv.lock": LOCK,
    "__init__.py": "",
    "README.md": "# Lamp\n",
    "server/__init__.py": "",
    "server/app.py": APP,
    "server/Dockerfile": DOCKERFILE,
    "validation/oracle.json": '[{"on": true}]\n',
}


def write_package(root: Path, name: str = "lamp_env") -> Path:
    """Write a package in which nothing is wrong."""
    package = root / name
    for path, text in FILES.items():
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_text(text, encoding="utf-8")
    return package


def replace(package: Path, file: str, old: str, new: str) -> None:
    """Change one thing in a file."""
    text = (package / file).read_text(encoding="utf-8")
    assert old in text, f"{file} has no {old!r}"
    (package / file).write_text(text.replace(old, new), encoding="utf-8")


@contextmanager
def installed_graders(root: Path, source: str, **entries: str) -> Iterator[None]:
    """Install a package of graders for as long as the block lasts.

    Args:
        root: Where it is written.
        source: Of its module ``foreign_graders``.
        **entries: Its entry points: names, and what each names in the module.
    """
    site = root / "site"
    about = site / "foreign_graders-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "foreign_graders.py").write_text(textwrap.dedent(source), encoding="utf-8")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-graders\nVersion: 1.0\n")
    lines = [f"{name} = foreign_graders:{value}" for name, value in entries.items()]
    (about / "entry_points.txt").write_text(
        "\n".join(["[openenv.validation.graders]", *lines]) + "\n"
    )
    sys.path.insert(0, str(site))
    try:
        yield
    finally:
        sys.path.remove(str(site))
        sys.modules.pop("foreign_graders", None)
