"""Datasets are put on the hub, by the real huggingface_hub against a hub on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import environ
from support.hub_server import HubServer, hub
from support.waiting import wait_until

from openenv.rollouts.collect import EpisodeRecord, RolloutSerializer
from openenv.rollouts.collect.tables import write_table

pytestmark = pytest.mark.slow

PUSH = """
import json, sys
from openenv.rollouts.collect import DatasetHubError, push_to_hf_hub
try:
    print(push_to_hf_hub(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3])))
except DatasetHubError as error:
    print(error)
    sys.exit(7)
"""


def record(number: int, said: str = "hello") -> EpisodeRecord:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": said * 20}]
    return EpisodeRecord(f"ep-{number:06d}", messages, 1.0, True, [], {}, {}, {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    with RolloutSerializer(made) as serializer:
        for number in range(10):
            serializer.write_episode(record(number))
    serializer.write_metadata({"env": "somewhere"})
    (made / "rollouts.jsonl").write_text("what nobody is to see")
    (made / "failures.jsonl").write_text("nor this")
    (made / ".env").write_text("nor that")
    return made


def command(folder: Path, **options: object) -> list[str]:
    return [sys.executable, "-c", PUSH, str(folder), "acme/games", json.dumps(options)]


def variables(url: str, token: str, folder: Path) -> dict[str, str]:
    return {
        **environ(),
        "HF_ENDPOINT": url,
        "HF_TOKEN": token,
        "HF_HOME": str(folder.parent / "hf"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
    }


def push(
    server: HubServer, folder: Path, token: str | None = None, **options: object
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, **options),
        env=variables(server.url, token or server.token, folder),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
def test_what_is_the_datasets_is_uploaded_and_nothing_else(folder: Path) -> None:
    with hub() as server:
        done = push(server, folder, private=True, commit_message="the first")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.strip() == f"{server.url}/datasets/acme/games"
        there = server.files["acme/games"]
        assert set(there) == {"README.md", "metadata.json", "results.jsonl"}
        assert there["results.jsonl"] == (folder / "results.jsonl").read_bytes()
        assert server.private == {"acme/games": True}
        assert [one["summary"] for one in server.commits] == ["the first"]
        assert b"nobody is to see" not in server.received
        assert server.token.encode() not in server.received


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
def test_an_upload_that_is_killed_is_gone_on_with(folder: Path) -> None:
    write_table(folder / "results.jsonl", folder / "results.parquet")
    with hub() as server:
        server.stalls = True
        env = variables(server.url, server.token, folder)
        with subprocess.Popen(command(folder), env=env) as process:
            try:
                wait_until(
                    lambda: (
                        len([one for one in server.asked if one.startswith("PUT")]) > 1
                        and len(server.objects) == 1
                    ),
                    20,
                )
            finally:
                process.kill()
        assert server.commits == []
        (first,) = server.objects
        sent = {one for one in server.asked if one.startswith("PUT")}
        server.stalls = False
        server.going_on.set()
        server.asked.clear()
        done = push(server, folder)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"PUT /lfs/{first}" not in server.asked
        assert {one for one in server.asked if one.startswith("PUT")} >= sent - {
            f"PUT /lfs/{first}"
        }
        assert len(server.commits) == 1
        assert server.files["acme/games"]["results.jsonl"].count(b"\n") == 10


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
def test_more_episodes_are_another_commit(folder: Path) -> None:
    with hub() as server:
        assert push(server, folder).returncode == 0
        with RolloutSerializer(folder) as serializer:
            serializer.write_episode(record(10))
        assert push(server, folder).returncode == 0
        assert len(server.commits) == 2
        assert server.files["acme/games"]["results.jsonl"].count(b"\n") == 11
        assert b"| episodes | 11 |" in server.files["acme/games"]["README.md"]


def test_a_hub_that_does_not_answer_is_said(folder: Path) -> None:
    done = subprocess.run(
        command(folder),
        env=variables("http://127.0.0.1:9", "hf_some_token_of_mine", folder),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 7, done.stdout + done.stderr
    assert "cannot be reached" in done.stdout and "online" in done.stdout


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
def test_what_is_there_is_not_sent_again(folder: Path) -> None:
    with hub() as server:
        assert push(server, folder).returncode == 0
        server.asked.clear()
        again = push(server, folder)
        assert again.returncode == 0, again.stdout + again.stderr
        assert not [one for one in server.asked if one.startswith("PUT")]


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
def test_a_token_that_is_not_taken_says_what_to_do(folder: Path) -> None:
    with hub() as server:
        done = push(server, folder, token="hf_a_wrong_one_of_mine")
        assert done.returncode == 7, done.stdout + done.stderr
        assert "401" in done.stdout and "HF_TOKEN" in done.stdout
        assert "hf_a_wrong_one_of_mine" not in done.stdout + done.stderr
        assert server.files == {}


def test_a_secret_in_an_episode_stops_the_upload(folder: Path) -> None:
    with hub() as server:
        with RolloutSerializer(folder) as serializer:
            serializer.write_episode(record(10, f"my token is {server.token}"))
        done = push(server, folder)
        assert done.returncode == 7, done.stdout + done.stderr
        assert "line 11" in done.stdout
        assert server.token not in done.stdout
        assert server.asked == [] or not server.files


@pytest.mark.extended("starts agents or hubs as processes; other tests show it in this process")
def test_what_only_looks_like_credentials_is_no_secret(folder: Path) -> None:
    with hub() as server:
        with RolloutSerializer(folder) as serializer:
            serializer.write_episode(record(10, "a basic understanding, at /x?token=whatever "))
        assert push(server, folder).returncode == 0
        assert server.files["acme/games"]["results.jsonl"].count(b"\n") == 11


def test_a_folder_without_episodes_is_not_uploaded(tmp_path: Path) -> None:
    with hub() as server:
        done = push(server, tmp_path / "none")
        assert done.returncode == 7, done.stdout + done.stderr
        assert server.files == {}


def test_a_card_of_ones_own_is_left_as_it_is(folder: Path) -> None:
    (folder / "README.md").write_text("# Mine\n")
    with hub() as server:
        assert push(server, folder).returncode == 0
        assert server.files["acme/games"]["README.md"] == b"# Mine\n"
