"""Every form of an oracle is shown to a server that runs."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.amounts import mostly_extended, rest
from validation.subjects.threads import ThreadProvider, copied

from openenv.client.generic import GenericEnvClient
from openenv.providers.process import ProcessProvider
from openenv.validation.providers import ValidationProvider
from openenv.validation.providers.process import ProcessValidationProvider
from openenv.validation.report import CheckResult
from openenv.validation.runner import validate
from openenv.validation.types import CheckStatus

PASS, FAIL, SKIP = CheckStatus.PASS, CheckStatus.FAIL, CheckStatus.SKIP
RIGHT = ["halt", "drive", "halt"]  # of the task test-0: red, green, red


def checked(
    root: Path, oracle: str | None, provider: ValidationProvider | None = None
) -> Mapping[str, CheckResult]:
    manifest = root / "openenv.yaml"
    declared = "    oracle: {form: script, location: validation/oracle.py}\n"
    text = manifest.read_text()
    assert declared in text
    manifest.write_text(text.replace(declared, oracle or ""))
    report = validate(root, skip_build=True, provider=provider or ThreadProvider()).report
    return {result.check_id: result for result in report.results}


def written(root: Path, content: Any) -> Path:
    (root / "validation" / "oracle.json").write_text(json.dumps(content))
    return root


def line(form: str, location: str = "validation/oracle.json") -> str:
    return f"    oracle: {{form: {form}, location: {location}}}\n"


@pytest.mark.slow
def test_without_an_oracle_an_environment_fails(tmp_path: Path) -> None:
    found = checked(copied(tmp_path), None)
    assert found["semantic.oracle_max"].status is FAIL
    assert found["semantic.oracle_max"].remediation is not None
    # Nothing that needs none is left out over it.
    for check_id in ("semantic.floor_gap", "semantic.canary_floor", "semantic.hacking_probes"):
        assert found[check_id].status is PASS
    for check_id in ("semantic.verifier_determinism", "semantic.no_solution_leakage"):
        assert found[check_id].status is SKIP


@pytest.mark.slow
def test_a_trajectory_that_is_written_down_is_shown(tmp_path: Path) -> None:
    actions = [{"say": word} for word in RIGHT]
    root = written(copied(tmp_path), {"reset": {"task": "test-0"}, "actions": actions})
    found = checked(root, line("script"))
    assert found["semantic.oracle_max"].status is PASS
    assert found["semantic.monotonicity"].status is PASS
    assert found["semantic.replayability"].status is PASS


@pytest.mark.extended("validates a whole subject; other tests of the check are quicker")
@pytest.mark.slow
def test_a_trajectory_that_solves_nothing_fails(tmp_path: Path) -> None:
    actions = [{"say": "halt"}] * 3
    root = written(copied(tmp_path), {"reset": {"task": "test-0"}, "actions": actions})
    found = checked(root, line("script"))["semantic.oracle_max"]
    assert found.status is FAIL
    assert list(found.measured["oracle_rewards"].values()) == [pytest.approx(1.6 / 3)]


@pytest.mark.slow
def test_an_oracle_that_cannot_be_read_fails_and_says_why(tmp_path: Path) -> None:
    found = checked(written(copied(tmp_path), {"episodes": []}), line("script"))
    assert found["semantic.oracle_max"].status is FAIL
    assert "0 episodes" in found["semantic.oracle_max"].evidence[0]


@pytest.mark.slow
def test_a_canary_that_cannot_be_begun_shows_nothing_and_fails(tmp_path: Path) -> None:
    root = copied(tmp_path)
    canaries = root / "validation" / "canaries.json"
    canaries.write_text(json.dumps([{"reset": {"task": "none-such"}, "actions": [{"say": "a"}]}]))
    report = validate(root, skip_build=True, provider=ThreadProvider()).report
    found = {result.check_id: result for result in report.results}["semantic.canary_floor"]
    assert found.status is FAIL
    assert "none-such" in found.evidence[0]


CHEST = '''
"""A chest that is open, or not."""

from pathlib import Path

from openenv.environment import Environment, restart, termination
from openenv.server import create_app
from openenv.types import Action, Observation, State


class Look(Action):
    pass


class ChestEnvironment(Environment[Look, Observation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    is_open = False
    count = 0
    name = None

    def reset(self, seed: int | None = None, episode_id: str | None = None, opened: bool = False):
        self.is_open, self.count, self.name = opened, 0, episode_id
        return restart(Observation())

    def step(self, action: Look):
        self.count += 1
        is_open = self.is_open or Path("opened").exists()
        return termination(Observation(), 1.0 if is_open else 0.0)

    @property
    def state(self):
        return State(episode_id=self.name, step_count=self.count)

    def snapshot(self):
        return b"open" if self.is_open else b"shut"

    def restore(self, data):
        self.is_open = data == b"open"


app = create_app(ChestEnvironment, Look, Observation, env_name="chest_env")
'''

MANIFEST = """
name: chest_env
app: server.app:app
validation:
  reward: {range: [0.0, 1.0], floor_margin: 0.5}
  resources: {cpu: 4, memory_mb: 4096, disk_mb: 64, episode_timeout_s: 30}
  capabilities:
    oracle: {form: script, location: validation/oracle.py}
    verifier: {kind: reward_channel}
  types: {tags: [game]}
  execution: {probe_path: validation/runtime.json}
"""


def chest(root: Path) -> Path:
    """A package whose server has files, and whose state can be set."""
    package = root / "chest_env"
    (package / "server").mkdir(parents=True)
    (package / "validation").mkdir()
    (package / "__init__.py").write_text("")
    (package / "openenv.yaml").write_text(MANIFEST)
    (package / "server" / "app.py").write_text(CHEST)
    (package / "server" / "__init__.py").write_text("")
    plan = {"plan_schema_version": "1", "reset": {"seed": 1}, "actions": [{}]}
    (package / "validation" / "runtime.json").write_text(json.dumps(plan))
    return package


async def stored(url: str) -> str:
    """A snapshot of the chest when it is open, as an author would write it down."""
    async with GenericEnvClient(url) as client:
        await client.reset(opened=True)
        return base64.b64encode(await client.snapshot()).decode()


@pytest.mark.extended("validates a whole subject; other tests of the check are quicker")
@pytest.mark.slow
@pytest.mark.parametrize("by", mostly_extended(["reset", "snapshot"]))
def test_a_state_that_is_set_is_looked_at_by_the_verifier(tmp_path: Path, by: str) -> None:
    root = chest(tmp_path)
    content: dict[str, Any] = {"reset": {"opened": True}}
    if by == "snapshot":
        with ProcessProvider(root).launch() as server:
            server.wait_for_ready()
            content = {"reset": {}, "snapshot": asyncio.run(stored(server.url)), "actions": [{}]}
    found = checked(written(root, content), line("injected_state"), ProcessValidationProvider())
    assert found["semantic.oracle_max"].status is PASS, found["semantic.oracle_max"]
    assert found["semantic.verifier_determinism"].status is PASS
    assert found["semantic.floor_gap"].status is PASS, found["semantic.floor_gap"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "expected"), [("touch opened", PASS), rest("true", FAIL), ("exit 3", SKIP)]
)
def test_a_program_in_the_sandbox_leads_to_the_solution(
    tmp_path: Path, script: str, expected: CheckStatus
) -> None:
    root = chest(tmp_path)
    (root / "validation" / "solve.sh").write_text(script)
    found = checked(root, line("script", "validation/solve.sh"), ProcessValidationProvider())
    assert found["semantic.oracle_max"].status is expected, found["semantic.oracle_max"]


@pytest.mark.slow
def test_a_program_in_the_sandbox_needs_a_provider_that_runs_commands(tmp_path: Path) -> None:
    root = copied(tmp_path)
    (root / "validation" / "solve.sh").write_text("true")
    found = checked(root, line("script", "validation/solve.sh"))["semantic.oracle_max"]
    assert found.status is SKIP
    assert "the provider cannot run" in found.evidence[0]


@pytest.mark.extended("validates a whole subject; other tests of the check are quicker")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "failing"),
    [
        ("", set()),
        rest("semantic.verifier_portability", {"semantic.verifier_portability"}),
        rest("runtime.memory", {"runtime.memory"}),
    ],
)
def test_it_is_the_same_of_a_process_of_its_own(
    tmp_path: Path, mutant: str, failing: set[str]
) -> None:
    root = copied(tmp_path)
    app = root / "server" / "app.py"
    text = app.read_text()
    assert 'os.environ.get("GOOD_ENV_MUTANT")' in text
    app.write_text(text.replace('os.environ.get("GOOD_ENV_MUTANT")', repr(mutant)))
    report = validate(root, skip_build=True, provider=ProcessValidationProvider()).report
    ran = [result for result in report.results if not result.check_id.startswith("static.")]
    assert {result.check_id for result in ran if result.status is FAIL} == failing
    assert not [result for result in ran if result.status is CheckStatus.ERROR]
