"""Data sets of a hub, which is a server of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.zygote import PythonProcess, run_python

from openenv.tasks import TasksetError, load_tasks
from openenv.tasks.hub import DataSetEnvironment, read_environment

COMMIT = "a1" * 20
CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*
  - split: test
    path: data/test-*
---
"""
MANIFEST = """spec_version: hf-rl-env-0.1
environments:
- id: sums
  config_name: default
  splits: [train]
  frameworks:
    verifiers: {adapter: antigravity.Taskset}
- id: all
"""
# The address of the hub is read when its library is imported, so it is asked in another process.
ASK = """
import json, logging, sys
from openenv.tasks import TasksetError, load_tasks
logging.basicConfig(stream=sys.stderr)
for asked in json.load(sys.stdin):
    reference = asked.pop("reference")
    try:
        tasks = load_tasks(reference, **asked)
    except TasksetError as error:
        print(json.dumps({"error": str(error), "source": error.source}))
    else:
        print(json.dumps({
            "ids": [task.id for task in tasks], "first": tasks[0].as_data(),
            "revision": tasks.revision, "splits": tasks.splits, "repr": repr(tasks),
            "fingerprint": tasks.fingerprint, "imported": "antigravity" in sys.modules}))
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    import pyarrow
    import pyarrow.parquet

    directory = tmp_path_factory.mktemp("repository")
    (directory / "data").mkdir()
    for split, count in (("train", 3), ("test", 1)):
        rows = [{"task_id": f"{split}-{i}", "q": f"{i}+1", "a": i + 1} for i in range(count)]
        file = directory / "data" / f"{split}-00000-of-00001.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    (directory / "README.md").write_text(CARD)
    (directory / "environment.yaml").write_text(MANIFEST)
    program = Path(__file__).with_name("hub_server.py")
    server = PythonProcess(
        [sys.executable, str(program), str(directory), COMMIT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None
    yield server.stdout.readline().strip()
    server.stdin.close()
    server.wait(10)
    server.stdout.close()


def ask(hub: str, home: Path, *asked: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = run_python(
        [sys.executable, "-c", ASK],
        input=json.dumps(asked),
        env=known | {"HF_ENDPOINT": hub, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.mark.slow
def test_a_data_set_is_loaded_at_one_commit(hub: str, tmp_path: Path) -> None:
    name, columns = "hf://datasets/acme/sums", {"prompt": "q"}
    (unsaid, tagged, declared, whole, *wrong), said = ask(
        hub,
        tmp_path,
        {"reference": name, "split": "train", "columns": columns},
        {"reference": name, "split": "train", "columns": columns, "revision": "v1"},
        {"reference": f"{name}/sums@{COMMIT}", "columns": columns},
        {"reference": f"{name}/all@v1", "split": "test"},
        {"reference": f"{name}@no-such-revision", "split": "train"},
        {"reference": f"{name}/smus@v1"},
        {"reference": f"{name}@v1", "revision": "v1"},
        {"reference": f"{name}/sums@v1", "split": "test"},
        {"reference": f"{name}/sums@v1", "config": "default"},
        {"reference": "hf://datasets/acme/no-such-data-set", "split": "train"},
    )
    assert unsaid["ids"] == ["train-0", "train-1", "train-2"]
    assert unsaid["first"] == {
        "id": "train-0",
        "prompt": "0+1",
        "criteria": {"a": 1},
        "split": "train",
        "index": 0,
    }
    assert unsaid["splits"] == ["train", "test"]
    assert unsaid["revision"] == tagged["revision"] == declared["revision"] == COMMIT
    assert unsaid["fingerprint"] == tagged["fingerprint"] == declared["fingerprint"]
    assert unsaid["repr"] == f"<Taskset {name}@{COMMIT} (train): 3 tasks>"
    assert said.count(f"no revision was given; it is pinned to {COMMIT}") == 1
    assert declared["splits"] == ["train"] and not declared["imported"]
    assert whole["ids"] == ["test-0"]
    assert ["error" in one for one in wrong] == [True] * 6
    assert "'sums'" in wrong[1]["error"]


@pytest.mark.parametrize(
    "reference",
    ["hf://datasets/only-a-name", "hf://models/a/b", "hf://datasets/a/b/c/d", "hf://datasets/a/b@"],
)
def test_what_names_no_data_set_is_refused(reference: str) -> None:
    with pytest.raises(TasksetError, match="expected hf://"):
        load_tasks(reference)


def test_what_a_data_set_declares_is_read(tmp_path: Path) -> None:
    path = tmp_path / "environment.yaml"
    path.write_text(MANIFEST)
    assert read_environment(path, "sums") == DataSetEnvironment("default", ("train",))
    assert read_environment(path, "all") == DataSetEnvironment(None, ())


@pytest.mark.parametrize(
    "content",
    [
        "a: [",
        "[]",
        "environments: 3",
        "environments: [3]",
        "environments: [{id: x, splits: train}]",
        "environments: [{id: x, config_name: [a]}]",
        "environments: [{id: y}]",
        "a: !!python/object/apply:os.system [exit]",
    ],
)
def test_a_declaration_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "environment.yaml"
    path.write_text(content)
    with pytest.raises(TasksetError):
        read_environment(path, "x")
