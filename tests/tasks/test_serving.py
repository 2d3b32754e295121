"""`openenv serve --tasks`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import openenv_running, run_openenv

from openenv import GenericEnvClient

pytestmark = pytest.mark.slow

ENVIRONMENT = """
from openenv import Action, Environment, Observation, State
from openenv.tasks import Task


class Asked(Observation):
    text: str = ""


class Asker(Environment[Action, Asked, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def reset(self, task: Task | None = None) -> Asked:
        return Asked(text=task.criteria["answer"][::-1] if task else "nothing")

    def step(self, action: Action) -> Asked:
        return Asked(done=True)


def tasks():
    return [{"id": f"t{i}", "answer": f"answer {i}"} for i in range(3)]
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "asker.py").write_text(ENVIRONMENT)
    rows = [{"id": f"t{i}", "criteria": {"answer": f"answer {i}"}} for i in range(3)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.mark.parametrize("source", ["tasks.jsonl", "asker:tasks"])
@pytest.mark.parametrize("workers", [[], ["--workers", "1"]])
def test_a_server_has_the_tasks_that_it_is_given(
    here: Path, source: str, workers: list[str]
) -> None:
    command = ["serve", "asker.py", "--port", "0", "--json", "--tasks", source, *workers]
    with openenv_running(*command, cwd=here, log=here / "log") as running:
        url = running.first_line()["url"]
        with GenericEnvClient(base_url=url).sync() as env:
            assert env.reset(task="t2").observation["text"] == "2 rewsna"
            assert env.tasks.get_task("train", 1) == {"id": "t1", "split": "train", "index": 1}
        assert "tasks: <ServedTasks train (3)>" in running.words()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--tasks", "task.jsonl"], "tasks.jsonl"),
        (["--tasks", "asker:taks"], "tasks"),
        (["--tasks", "tasks.jsonl", "--reload"], "--reload"),
        (["--tasks", "tasks.jsonl", "--mcp", "true"], "exclude"),
    ],
)
def test_what_cannot_be_served_is_told(here: Path, options: list[str], word: str) -> None:
    target = [] if "--mcp" in options else ["asker.py"]
    done = run_openenv("serve", *target, "--port", "0", *options, cwd=here)
    assert done.returncode == 2
    assert word in done.stderr
