"""Every snippet of public writing about this package, as it stands there.

Only what a snippet cannot know is put in its place: the address of a server, and a provider that
starts one here without an engine of containers. Clusters and the Hub have tests of their own, which
drive the same calls: tests/providers/kubernetes, tests/hub.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from support.certificates import Certificates, of_loopback
from support.servers import serving

from echo_env.server.app import app as echo_app
from openenv.cli.__main__ import app as command_line

__all__ = ["of_loopback"]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(echo_app) as address:
        yield address


def run(snippet: str, **names: Any) -> dict[str, Any]:
    """Run a snippet as a notebook does, where `await` may stand anywhere; gives its names."""
    code = textwrap.dedent(snippet)
    names["__name__"] = "promised"
    body = textwrap.indent(code, "    ")
    exec(f"async def main():\n{body}\n    globals().update(locals())", names)
    asyncio.run(names["main"]())
    return names


# ------------------------------------------------------------------ echo, in the newer writing

TOOLS = """
    from echo_env import CallToolAction, EchoEnv
    async with EchoEnv(base_url="https://...") as client:
        result = await client.reset()
        result = await client.step(CallToolAction(tool_name="echo_message", arguments={"message": "Hello, World!"}))
        seen = result.observation.result, result.reward, result.done
        state = await client.state(); known = state.episode_id, state.step_count, state.elapsed_time
"""  # noqa: E501  # as it stands there


@pytest.mark.parametrize("form", ["http://{}", "ws://{}", "{}", "http://{}/"])
def test_a_tool_is_called_by_a_client(url: str, form: str) -> None:
    names = run(TOOLS.replace("https://...", form.format(url.partition("//")[2])))
    result, reward, done = names["seen"]
    assert isinstance(result, str) and result == f"{result}" == "Hello, World!"
    assert (reward, done) == (None, False)
    episode_id, step_count, elapsed_time = names["known"]
    assert episode_id and step_count == 1 and 0 < elapsed_time < 60


def test_a_tool_is_called_by_tls(
    of_loopback: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_CA_FILE", of_loopback.authority)
    with serving(echo_app, **of_loopback.of_server) as address:
        port = address.rpartition(":")[2]
        names = run(TOOLS.replace("https://...", f"https://127.0.0.1:{port}"))
    assert names["seen"][0] == "Hello, World!"


def test_the_same_without_await(url: str) -> None:
    snippet = """
        from echo_env import CallToolAction, EchoEnv
        with EchoEnv(base_url="https://...").sync() as client:
            result = client.reset()
            result = client.step(CallToolAction(tool_name="echo_message", arguments={"message": "Hello, World!"}))
            state = client.state()
    """  # noqa: E501
    names = run(snippet.replace("https://...", url))
    assert isinstance(names["result"].observation.result, str)
    assert names["result"].observation.result == "Hello, World!"
    assert names["state"].step_count == 1


@pytest.mark.slow("starts a server in a process of its own, in place of a container")
def test_an_image_is_started_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_RUN_IMAGES", "process")
    names: dict[str, Any] = {}
    exec(
        textwrap.dedent("""
            from echo_env import EchoEnv
            client = EchoEnv.from_docker_image("echo-env:latest"); first = client.reset()
            ready = first.observation.echoed_message; client.close()
        """),
        names,
    )
    assert names["ready"] == "Echo environment ready!"


@pytest.mark.slow("starts a server in a process of its own")
def test_a_provider_starts_connects_and_tears_down() -> None:
    names = run(
        """
        from echo_env import EchoEnv
        from openenv.providers import ProcessProvider
        provider = ProcessProvider("echo_env")
        async with EchoEnv.with_provider(provider) as env:
            ready = (await env.reset()).observation.echoed_message
            url = env.base_url
        """
    )
    assert names["ready"] == "Echo environment ready!"
    with pytest.raises(httpx.ConnectError):
        httpx.get(names["url"])


@pytest.mark.parametrize("name", ["echo", "echo-env", "echo_env"])
def test_classes_are_found_by_name(name: str) -> None:
    snippet = """
        from openenv.core.auto_env import AutoAction, AutoEnv
        EchoEnv = AutoEnv.from_env("echo"); CallToolAction = AutoAction.from_env("echo")
    """
    names = run(snippet.replace('"echo"', f'"{name}"'))
    assert names["CallToolAction"].__module__.startswith("echo_env")


def test_a_provider_of_a_cluster_takes_what_is_promised(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)
    names = run(
        """
        from openenv.providers import LocalDockerProvider, KubernetesProvider
        provider = KubernetesProvider(namespace="rl-training", image="...", resource_limits={"cpu": "2", "memory": "4Gi"}, replicas=64)
        """.replace("replicas=64", f"replicas=64, kubeconfig={str(config)!r}")  # noqa: E501
    )
    assert names["provider"].replicas == 64


KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:9"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


# ------------------------------------------------------------------ echo, in the oldest writing


@pytest.mark.parametrize(
    "imports",
    [
        "from envs.echo_env import EchoAction, EchoEnv",
        "from echo_env.models import EchoAction\nfrom echo_env import EchoEnv",
    ],
)
def test_the_oldest_writing_is_understood(
    imports: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    snippet = """
        client = EchoEnv(base_url="...")
        ready = client.reset().observation.echoed_message
        result = client.step(EchoAction(message="Hello, World!"))
        client.close()
    """
    code = textwrap.dedent(snippet.replace("...", url))
    names: dict[str, Any] = {}
    exec(f"{imports}\n{code}", names)
    assert names["ready"] == "Echo environment ready!"
    assert names["result"].observation.echoed_message == "Hello, World!"
    assert names["result"].reward == pytest.approx(1.3)


def test_the_oldest_writing_can_be_awaited(url: str) -> None:
    snippet = """
        from echo_env import EchoAction, EchoEnv
        async with EchoEnv(base_url="...") as client:
            result = await client.reset(); ready = result.observation.echoed_message
            result = await client.step(EchoAction(message="Hello, World!"))
    """
    names = run(snippet.replace("...", url))
    assert names["ready"] == "Echo environment ready!"
    assert names["result"].observation.echoed_message == "Hello, World!"


# ------------------------------------------------------------------ environments of authors

AUTHORS = """
    import asyncio
    from openenv.core.environment import Environment
    from openenv.core import EnvClient
    from openenv.models import Action, Observation, State, StepResult

    class RunCodeAction(Action):
        code: str

    class ResetAction(Action):
        pass

    class PyExecObservation(Observation):
        stdout: str = ""

    class PyExecState(State):
        variables: int = 0

    class PyExec(Environment):
        async def reset(self) -> Observation:
            self.ran = 0
            return PyExecObservation()

        async def step(self, action: RunCodeAction | ResetAction) -> StepResult:
            self.ran += 1
            said = action.code if isinstance(action, RunCodeAction) else "reset"
            return StepResult(observation=PyExecObservation(stdout=said), reward=1.0, done=self.ran == 2, info={"ran": self.ran})

        async def state(self) -> State:
            return PyExecState(episode_id="e", step_count=self.ran, variables=self.ran)

    class PyExecEnv(EnvClient):
        observation_type = PyExecObservation
        action_types = [RunCodeAction, ResetAction]
"""  # noqa: E501


def test_an_environment_in_the_newer_writing_is_served_and_driven() -> None:
    from openenv import create_app

    names: dict[str, Any] = {"__name__": "authors"}
    exec(textwrap.dedent(AUTHORS), names)
    application = create_app(
        names["PyExec"],
        names["RunCodeAction"] | names["ResetAction"],
        names["PyExecObservation"],
        state_cls=names["PyExecState"],
    )
    with serving(application) as address, names["PyExecEnv"](base_url=address).sync() as client:
        assert type(client.reset().observation) is names["PyExecObservation"]
        first = client.step(names["RunCodeAction"](code="1 + 1"))
        assert (first.observation.stdout, first.reward, first.done) == ("1 + 1", 1.0, False)
        last = client.step(names["ResetAction"]())
        assert (last.observation.stdout, last.done) == ("reset", True)
        assert client.state().step_count == 2


def test_a_page_is_made_of_an_environment_class() -> None:
    from starlette.testclient import TestClient

    names = run(
        """
        from openenv.core.env_server import create_web_interface_app
        from echo_env.models import EchoAction as YourAction, EchoObservation as YourObservation
        from echo_env.server.echo_environment import EchoEnvironment as env
        app = create_web_interface_app(env, YourAction, YourObservation)
        """
    )
    with TestClient(names["app"]) as browser:
        assert browser.get("/web/").status_code == 200


def test_a_page_is_made_of_an_environment_instance() -> None:
    names = run(
        """
        from openenv.core.env_server import create_web_interface_app
        from echo_env.models import EchoAction as YourAction, EchoObservation as YourObservation
        from echo_env.server.echo_environment import EchoEnvironment
        env = EchoEnvironment()
        closed = []
        env.close = lambda: closed.append(env)
        app = create_web_interface_app(env, YourAction, YourObservation)
        """
    )
    from echo_env import EchoAction, EchoEnv

    with serving(names["app"]) as address:
        for steps in (1, 2):  # one session after the other has the same instance, not closed
            with EchoEnv(address) as client:
                client.reset()
                for _ in range(steps):
                    client.step(EchoAction(message="hi"))
                assert names["env"].state.step_count == steps
    assert not names["closed"]
    with pytest.raises(TypeError, match="not str"):
        names["create_web_interface_app"]("echo")


def test_a_provider_of_images_runs_that_of_the_clients_package(url: str) -> None:
    """As ``EchoEnv.with_provider(LocalDockerProvider())`` does."""
    from echo_env import EchoEnv
    from openenv import GenericEnvClient
    from openenv.client.launch import image_of_client
    from openenv.providers import ContainerProvider

    started: list[str] = []

    class Images(ContainerProvider):
        image: str | None = None

        def start_container(
            self,
            image: str | None = None,
            port: int | None = None,
            env_vars: dict[str, str] | None = None,
            **kwargs: Any,
        ) -> str:
            started.append(image or str(self.image))
            return url

        def stop_container(self) -> None: ...
        def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None: ...

    with EchoEnv.with_provider(Images()) as env:
        assert env.reset().observation.echoed_message == "Echo environment ready!"
    own = Images()
    own.image = "mine:1"
    with EchoEnv.with_provider(own) as env:
        env.reset()
    assert started == ["echo-env:latest", "mine:1"]
    assert image_of_client(GenericEnvClient) is None


# ------------------------------------------------------------------ the command line


@pytest.mark.parametrize(
    "line",
    [
        "openenv init my_env",
        "openenv build",
        "openenv serve",
        "openenv push",
        "openenv push --repo-id R",
        "openenv push --repo-id R --private",
        "openenv fork SPACE",
        "openenv validate",
        "openenv deploy --space ORG/NAME --hardware cpu-basic",
    ],
)
def test_a_command_is_understood_as_it_is_written(line: str) -> None:
    _, name, *arguments = shlex.split(line)
    group: Any = typer.main.get_command(command_line)
    command = group.get_command(typer.Context(group), name)
    assert command.make_context(name, arguments).params


# ------------------------------------------------------------------ trainers


def test_a_trainer_gathers_completions_from_its_reward_function(url: str) -> None:
    """As in GRPO: a fresh session for each completion, from a function that is not awaited."""
    from echo_env import EchoAction, EchoEnv

    async def score(completion: str) -> float | None:
        async with EchoEnv(base_url=url) as env:
            await env.reset()
            return (await env.step(EchoAction(message=completion))).reward

    async def score_all(completions: list[str]) -> list[float | None]:
        return list(await asyncio.gather(*[score(one) for one in completions]))

    def reward(completions: list[str]) -> list[float | None]:
        return asyncio.run(score_all(completions))

    for _ in range(2):
        given = reward(["x" * (n + 1) for n in range(8)])
        assert given == [pytest.approx(0.1 * (n + 1)) for n in range(8)]
