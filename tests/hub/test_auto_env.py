"""Environments by name: what is found, which classes, and where the client's server is."""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import logging
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Response
from support import packages
from support.hub_server import HubServer
from support.hub_server import hub as hub_server
from support.packages import make_distribution, make_package

from openenv._internal.targets import TargetKind, parse_target
from openenv.auto import AutoAction, AutoEnv
from openenv.client import GenericAction, GenericEnvClient
from openenv.errors import ConnectError, ProviderError
from openenv.hub import RepositoryNotFoundError, discovery, installing
from openenv.hub.auto_env import ServerUnreachableError
from openenv.hub.discovery import UnknownEnvironmentError, get_discovery
from openenv.hub.names import parse_space_reference
from openenv.providers import ContainerProvider, ProcessProvider, RuntimeProvider
from openenv.tools.types import CallToolAction

pytestmark = pytest.mark.slow  # most start servers in processes of their own


SOURCE = Path(discovery.__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# ------------------------------------------------------------------ what is found


def test_a_distribution_with_the_prefix_is_an_environment(site: Path) -> None:
    make_distribution(site, "openenv-parrot-env", "2.1", "Says what it is told")
    make_package(site, "parrot_env", "Parrot")
    assert AutoEnv.get_env_info("parrot") == {
        "env_key": "parrot",
        "name": "parrot_env",
        "package": "openenv-parrot-env",
        "version": "2.1",
        "description": "Says what it is told",
        "env_class": "ParrotEnv",
        "action_class": "ParrotAction",
        "observation_class": "ParrotObservation",
        "module": "parrot_env.client",
        "default_image": "parrot-env:latest",
        "spec_version": None,
    }
    assert AutoAction.get_action_info("parrot") == {
        "env_key": "parrot",
        "env_name": "parrot_env",
        "package": "openenv-parrot-env",
        "action_class": "ParrotAction",
        "observation_class": "ParrotObservation",
        "module": "parrot_env.client",
    }


def test_a_package_with_a_manifest_is_an_environment(site: Path) -> None:
    make_package(site, "grid_env", "Grid", "name: grid_env\nspec_version: 1\nversion: 0.4.0\n")
    info = AutoEnv.get_env_info("grid")
    assert (info["package"], info["version"], info["spec_version"]) == ("grid_env", "0.4.0", 1)
    assert AutoEnv.get_env_class("grid").__name__ == "GridEnv"


def test_a_distribution_without_the_prefix_is_found_by_its_manifest(site: Path) -> None:
    make_distribution(site, "grid-world", record="grid_env/__init__.py grid_env/openenv.yaml")
    make_package(site, "grid_env", "Grid", "name: grid\n")
    assert AutoEnv.get_env_class("grid").__name__ == "GridEnv"


def test_a_distribution_named_unlike_its_package_is_found_by_its_files(site: Path) -> None:
    make_distribution(site, "openenv-lattice", "3.0", record="grid_env/client.py")
    make_package(site, "grid_env", "Grid")
    info = AutoEnv.get_env_info("lattice")
    assert (info["package"], info["module"]) == ("openenv-lattice", "grid_env.client")


def test_a_package_without_either_is_found_by_its_name(site: Path) -> None:
    make_package(site, "grid_env", "Grid")
    assert AutoEnv.get_env_class("grid").__name__ == "GridEnv"
    assert "grid" not in get_discovery().discover()


def test_the_core_and_plain_libraries_are_no_environments(site: Path) -> None:
    make_distribution(site, "openenv-core")
    make_distribution(site, "openenv-helpers")
    packages.write(site / "helpers", {"__init__.py": ""})
    assert {"core", "helpers"}.isdisjoint(get_discovery().discover())


def test_a_distribution_and_its_manifest_are_one_environment(site: Path) -> None:
    make_distribution(site, "openenv-parrot-env", "2.1")
    make_package(site, "parrot_env", "Parrot", "name: cockatoo\nversion: 9.9.9\n")
    known = get_discovery().discover()
    assert "parrot" not in known
    assert known["cockatoo"].version == "2.1"
    by_module = get_discovery().get_environment_by_name("parrot_env")
    assert by_module == known["cockatoo"]


@pytest.mark.parametrize("name", ["my_env", "my-env", "my", "My_Env", "openenv-my-env"])
def test_every_way_to_write_a_name_is_understood(site: Path, name: str) -> None:
    make_distribution(site, "openenv-my_env")
    make_package(site, "my_env", "My")
    assert AutoAction.from_env(name).__name__ == "MyAction"


def test_only_a_trailing_env_is_dropped_from_a_name(site: Path) -> None:
    make_distribution(site, "openenv-my_env_two_env")
    make_package(site, "my_env_two_env", "MyEnvTwo")
    assert list(get_discovery().discover()).count("my_env_two") == 1
    assert AutoEnv.get_env_class("my-env-two").__name__ == "MyEnvTwoEnv"


def test_an_unknown_name_gets_a_suggestion(site: Path) -> None:
    make_package(site, "parrot_env", "Parrot", "name: parrot\n")
    with pytest.raises(UnknownEnvironmentError) as caught:
        AutoEnv.from_env("parot")
    assert isinstance(caught.value, ValueError)
    assert "parrot" in caught.value.known
    assert "Did you mean 'parrot'?" in str(caught.value)


def test_with_nothing_installed_the_error_says_how_to_install(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_find_environments", dict)
    with pytest.raises(UnknownEnvironmentError, match="pip install"):
        AutoAction.from_env("nothing_of_the_kind")


def test_listings_name_every_environment(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_distribution(site, "openenv-acmerl-env", "0.2", "Trades")
    make_package(site, "acmerl_env", "AcmeRL")
    AutoEnv.list_environments()
    AutoAction.list_actions()
    environments, actions = capsys.readouterr().out.split("Available Action Classes:")
    assert "acmerl" in environments and "Trades (v0.2)" in environments
    assert "AcmeRLAction" in actions and "openenv-acmerl-env" in actions


def test_a_broken_manifest_is_passed_over(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_package(site, "parrot_env", "Parrot", "name: [\n")
    with caplog.at_level(logging.WARNING):
        assert AutoEnv.get_env_class("parrot").__name__ == "ParrotEnv"
    assert "openenv.yaml" in caplog.text


# ------------------------------------------------------------------ how long it is remembered


def test_nothing_is_looked_up_twice(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    find = discovery._find_environments

    def counting() -> dict[str, discovery.EnvironmentInfo]:
        looked.append(1)
        return find()

    monkeypatch.setattr(discovery, "_find_environments", counting)
    for _ in range(3):
        get_discovery().discover()
    assert len(looked) == 1
    get_discovery().discover(use_cache=False)
    get_discovery().clear_cache()
    get_discovery().discover()
    assert len(looked) == 3


def test_what_is_installed_upgraded_or_removed_is_seen_at_once(site: Path) -> None:
    assert "parrot" not in get_discovery().discover()
    make_package(site, "parrot_env", "Parrot")
    old = make_distribution(site, "openenv-parrot-env", "1.0")
    assert AutoEnv.get_env_info("parrot")["version"] == "1.0"
    shutil.rmtree(old)
    make_distribution(site, "openenv-parrot-env", "2.0")
    assert AutoEnv.get_env_info("parrot")["version"] == "2.0"
    shutil.rmtree(site / "parrot_env")
    shutil.rmtree(site / "openenv_parrot_env-2.0.dist-info")
    with pytest.raises(UnknownEnvironmentError):
        AutoEnv.get_env_info("parrot")


def test_nothing_is_written_to_disk(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    get_discovery().discover(use_cache=False)
    assert not (tmp_path / "cache").exists() and not (tmp_path / "home").exists()


# ------------------------------------------------------------------ which classes


@pytest.mark.parametrize(
    ("package", "stem"),
    [
        # Those of the public environments whose case a name does not tell.
        ("browsergym_env", "BrowserGym"),
        ("dipg_safety_env", "DIPGSafety"),
        ("dm_control_env", "DMControl"),
        ("finqa_env", "FinQA"),
        ("finrl_env", "FinRL"),
        ("openapp_env", "OpenApp"),
        ("opencode_env", "OpenCode"),
        ("openspiel_env", "OpenSpiel"),
        ("repl_env", "REPL"),
        ("sumo_rl_env", "SumoRL"),
        ("tbench2_env", "Tbench2"),
        ("textarena_env", "TextArena"),
    ],
)
def test_the_case_of_a_class_name_does_not_matter(site: Path, package: str, stem: str) -> None:
    make_distribution(site, f"openenv-{package}")
    make_package(site, package, stem)
    info = get_discovery().require(package)
    assert info.get_client_class().__name__ == f"{stem}Env"
    assert info.get_action_class().__name__ == f"{stem}Action"
    assert info.get_observation_class().__name__ == f"{stem}Observation"


def test_the_manifest_says_which_classes(site: Path) -> None:
    manifest = "name: parrot_env\naction: Squawk\nobservation: Heard\nclient: Cage\n"
    make_package(
        site,
        "parrot_env",
        "Parrot",
        manifest,
        models="""
            from openenv.types import Action, Observation
            class Squawk(Action): ...
            class Heard(Observation): ...
        """,
        init="from .models import Heard",
        client="""
            from openenv.client import EnvClient
            class Cage(EnvClient): ...
            class OtherCage(EnvClient): ...
        """,
    )
    info = get_discovery().require("parrot")
    assert info.get_client_class().__name__ == "Cage"
    assert info.get_action_class().__name__ == "Squawk"
    assert info.get_observation_class().__name__ == "Heard"


def test_a_client_of_another_name_is_found_when_it_is_the_only_one(site: Path) -> None:
    make_package(
        site,
        "parrot_env",
        "Parrot",
        "name: parrot\n",
        client="""
            from openenv.client import EnvClient
            class Cage(EnvClient): ...
        """,
    )
    assert AutoEnv.get_env_class("parrot").__name__ == "Cage"


def test_an_environment_of_tools_has_the_action_of_its_client(site: Path) -> None:
    make_package(
        site,
        "tool_env",
        "Tool",
        "name: tool_env\n",
        models="",
        client="""
            from openenv.client import EnvClient
            from openenv.tools.types import CallToolAction, CallToolObservation
            from openenv.types import State
            class ToolEnv(EnvClient[CallToolAction, CallToolObservation, State]): ...
        """,
    )
    assert AutoAction.from_env("tool") is CallToolAction


def test_a_package_without_a_client_class_says_what_it_has(site: Path) -> None:
    make_package(site, "parrot_env", "Parrot", "name: parrot\n", client="class Cage: ...\n")
    with pytest.raises(ImportError, match=r"ParrotEnv.*Cage"):
        AutoEnv.get_env_class("parrot")
    assert AutoEnv.get_env_info("parrot")["env_class"] == "ParrotEnv"


def test_a_package_that_is_gone_is_an_import_error(site: Path) -> None:
    make_distribution(site, "openenv-parrot-env")
    with pytest.raises(ImportError, match="parrot_env"):
        AutoEnv.from_env("parrot")


def test_what_a_package_fails_to_import_is_named(site: Path) -> None:
    make_package(site, "parrot_env", "Parrot", "name: parrot\n", models="import no_such_library\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        AutoAction.from_env("parrot")


def test_the_factories_have_no_instances() -> None:
    for factory in (AutoEnv, AutoAction):
        with pytest.raises(TypeError, match="from_env"):
            factory()


def test_without_installing_every_action_is_generic() -> None:
    assert AutoAction.from_env("nothing/of-the-kind", skip_install=True) is GenericAction
    assert AutoAction.from_hub("nothing", skip_install=True) is GenericAction


# ------------------------------------------------------------------ where the server is


def served(module: str, serve: Callable[[Any], str]) -> str:
    app = importlib.import_module(f"{module}.server.app").app
    return serve(app)


def test_a_server_at_the_base_url_is_used(parrot: Path, serve: Callable[[Any], str]) -> None:
    url = served("parrot_env", serve)
    client = AutoEnv.from_env("parrot", base_url=url, message_timeout_s=5.0)
    with client:
        assert client.base_url == url
        assert client.reset().observation.word == "hello"
        action = AutoAction.from_env("parrot")(word="polly")
        assert client.step(action).observation.word == "polly"


def test_any_scheme_of_the_base_url_is_understood(
    parrot: Path, serve: Callable[[Any], str]
) -> None:
    url = served("parrot_env", serve).removeprefix("http://")
    for prefix in ("", "ws://", "http://", "WS://"):
        with AutoEnv.from_hub("parrot", base_url=f"{prefix}{url}/") as client:
            assert client.reset().observation.word == "hello"


def test_the_headers_of_the_client_are_sent_when_the_server_is_sought(
    parrot: Path, serve: Callable[[Any], str]
) -> None:
    gate = FastAPI()

    @gate.get("/health")
    def health(response: Response, authorization: str | None = None) -> dict[str, str]:
        return {}

    seen: list[str | None] = []

    @gate.middleware("http")
    async def note(request: Any, call_next: Any) -> Any:
        seen.append(request.headers.get("authorization"))
        return await call_next(request)

    AutoEnv.from_env("parrot", base_url=serve(gate), headers={"Authorization": "Bearer t"})
    assert seen == ["Bearer t"]


def test_env_vars_for_a_server_that_runs_are_not_lost_in_silence(
    parrot: Path, serve: Callable[[Any], str], caplog: pytest.LogCaptureFixture
) -> None:
    url = served("parrot_env", serve)
    with caplog.at_level(logging.WARNING):
        AutoEnv.from_env("parrot", base_url=url, env_vars={"A": "1"})
    assert "env_vars were ignored" in caplog.text


def test_a_server_elsewhere_that_does_not_answer_is_an_error(
    parrot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "answers", lambda *_: False)
    with pytest.raises(ServerUnreachableError) as caught:
        AutoEnv.from_env("parrot", base_url="https://parrot.example.invalid")
    assert isinstance(caught.value, ConnectError) and isinstance(caught.value, ValueError)


def test_an_address_here_where_nothing_runs_is_served_by_the_installed_package(
    parrot: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    with caplog.at_level(logging.WARNING):
        client = AutoEnv.from_env("parrot", base_url=f"http://localhost:{port}")
    assert "one is started there" in caplog.text
    with client:
        assert client.base_url == f"http://127.0.0.1:{port}"
        assert client.reset().observation.word == "hello"


@pytest.mark.extended("installs a package or starts a server; other tests show the choice")
def test_with_nothing_given_the_installed_package_is_served_from_a_process(parrot: Path) -> None:
    client = AutoEnv.from_env("parrot", env_vars={"PARROT_GREETING": "ahoy"})
    assert client.base_url is None
    with client:
        assert client.reset().observation.word == "ahoy"
        assert client._launch is not None
        provider = client._launch._provider
        assert isinstance(provider, ProcessProvider) and provider.pid is not None
        pid = provider.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def play(client: Any) -> str:
    async with client:
        result = await client.reset()
        return str(result.observation.word)


def test_a_client_made_in_a_running_loop_is_used_there(parrot: Path) -> None:
    import asyncio

    async def main() -> str:
        return await play(AutoEnv.from_env("parrot"))

    assert asyncio.run(main()) == "hello"


class FakeContainers(ContainerProvider):
    """Runs no container; says what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.calls: list[tuple[Any, ...]] = []

    def start_container(
        self,
        image: str,
        port: int | None = None,
        env_vars: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        self.calls.append(("start", image, port, env_vars, kwargs))
        return self.url

    def stop_container(self) -> None:
        self.calls.append(("stop",))

    def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None:
        self.calls.append(("wait", base_url, timeout_s))


def test_the_wait_is_for_readiness_and_no_option_of_the_start(
    parrot: Path, serve: Callable[[Any], str]
) -> None:
    url = served("parrot_env", serve)
    provider = FakeContainers(url)
    client = AutoEnv.from_env(
        "parrot",
        docker_image="parrots:v2",
        container_provider=provider,
        wait_timeout=7.5,
        env_vars={"A": "1"},
        port=1234,
        memory="1g",
        message_timeout_s=5.0,
    )
    with client:
        assert client.reset().observation.word == "hello"
    assert provider.calls == [
        ("start", "parrots:v2", 1234, {"A": "1"}, {"memory": "1g"}),
        ("wait", url, 7.5),
        ("stop",),
    ]


def test_options_that_a_client_passes_on_are_its_own_and_not_of_the_start(
    site: Path, serve: Callable[[Any], str]
) -> None:
    make_package(
        site,
        "parrot_env",
        "Parrot",
        client="from openenv.client.mcp import MCPToolClient as ParrotEnv\n",
    )
    provider = FakeContainers(served("parrot_env", serve))
    client = AutoEnv.from_env(
        "parrot",
        docker_image="parrots:v2",
        container_provider=provider,
        memory="1g",
        journal=True,
        queue_timeout_s=5.0,
    )
    with client:
        client.reset()
    assert provider.calls[0] == ("start", "parrots:v2", None, None, {"memory": "1g"})


def test_a_provider_alone_runs_the_default_image(parrot: Path, serve: Callable[[Any], str]) -> None:
    provider = FakeContainers(served("parrot_env", serve))
    with AutoEnv.from_env("parrot", container_provider=provider) as client:
        client.reset()
    assert provider.calls[0] == ("start", "parrot-env:latest", None, None, {})


class FakeRuntime(RuntimeProvider):
    """Starts nothing; says what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.calls: list[tuple[Any, ...]] = []

    def start(
        self, port: int | None = None, env_vars: dict[str, str] | None = None, **kwargs: Any
    ) -> str:
        self.calls.append(("start", port, env_vars, kwargs))
        return self.url

    def stop(self) -> None:
        self.calls.append(("stop",))

    def wait_for_ready(self, timeout_s: float = 30.0) -> None:
        self.calls.append(("wait", timeout_s))


def test_a_provider_of_one_server_is_used_too(parrot: Path, serve: Callable[[Any], str]) -> None:
    provider = FakeRuntime(served("parrot_env", serve))
    with AutoEnv.from_env("parrot", container_provider=provider, wait_timeout=3.0) as client:
        client.reset()
    assert provider.calls == [("start", None, None, {}), ("wait", 3.0), ("stop",)]


@pytest.mark.extended("installs a package or starts a server; other tests show the choice")
def test_a_server_that_is_not_ready_in_time_is_stopped(parrot: Path) -> None:
    packages.write(parrot, {"server/app.py": "import time\nwhile True: time.sleep(0.1)\n"})
    client = AutoEnv.from_env("parrot", wait_timeout=0.5)
    with pytest.raises(ProviderError) as caught:
        client.reset()
    assert isinstance(caught.value, TimeoutError)


def test_without_installing_a_local_name_needs_a_server(serve: Callable[[Any], str]) -> None:
    with pytest.raises(ValueError, match="base_url"):
        AutoEnv.from_env("parrot", skip_install=True)
    with pytest.raises(ConnectionError):
        AutoEnv.from_env("parrot", base_url=f"http://127.0.0.1:{free_port()}", skip_install=True)
    with pytest.raises(ValueError, match="docker_image"):
        AutoEnv.from_env("x", container_provider=FakeContainers("http://x"), skip_install=True)


def test_without_installing_the_client_is_generic(
    parrot: Path, serve: Callable[[Any], str]
) -> None:
    url = served("parrot_env", serve)
    with AutoEnv.from_env("whatever", base_url=url, skip_install=True) as client:
        assert isinstance(client, GenericEnvClient)
        assert client.reset().observation["word"] == "hello"


# ------------------------------------------------------------------ the Hub


@pytest.mark.parametrize(
    "name",
    [
        "owner/parrot-env",
        "https://huggingface.co/spaces/owner/parrot-env",
        "https://huggingface.co/owner/parrot-env/",
        "http://www.huggingface.co/spaces/owner/parrot-env.git",
        "huggingface.co/spaces/owner/parrot-env/tree/main",
        "https://hf.co/spaces/owner/parrot-env",
    ],
)
def test_every_way_to_write_a_space_is_understood(name: str) -> None:
    assert parse_target(name).kind is TargetKind.HUB
    assert installing.repo_id_of(name) == "owner/parrot-env"


@pytest.mark.parametrize("name", ["owner/", "a b/c", "--x/y", "ftp://a/b"])
def test_what_names_no_space_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="names no Space"):
        AutoEnv.from_env(name)


def test_a_space_has_an_address_an_image_and_a_repository() -> None:
    assert installing.space_url("Owner/Parrot_Env.v2") == "https://owner-parrot-env-v2.hf.space"
    assert installing.space_image("Owner/Parrot_Env") == "registry.hf.space/owner-parrot-env:latest"
    assert installing.source_url("o/n") == "https://huggingface.co/spaces/o/n"


def test_a_space_is_named_with_a_revision_in_every_way() -> None:
    for name in (
        "owner/parrot-env@v1/x",
        "https://huggingface.co/spaces/owner/parrot-env@v1/x",
        "https://huggingface.co/spaces/owner/parrot-env/tree/v1%2Fx",
    ):
        assert parse_space_reference(name) == ("owner/parrot-env", "v1/x")
    with pytest.raises(ValueError, match="names a revision, and so does"):
        AutoEnv.from_env("owner/parrot-env@v1", revision="v2")
    with pytest.raises(ValueError, match="is not on the Hub"):
        AutoEnv.from_env("parrot", revision="v2")


def test_another_hub_is_that_of_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9/")
    assert installing.source_url("o/n") == "http://127.0.0.1:9/spaces/o/n"
    assert parse_space_reference("http://127.0.0.1:9/spaces/o/n").repo_id == "o/n"


@pytest.fixture
def hub(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A Hub with a Space that holds a package; packages are installed into `site`."""
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(installing, "SPACE_URL", f"http://127.0.0.1:{free_port()}/{{subdomain}}")
    installer = installing._installer
    extra = ["--target", str(site), "--no-deps"]
    monkeypatch.setattr(installing, "_installer", lambda: [*installer(), *extra])
    project = packages.make_project(
        tmp_path / "project", "openenv-hub-parrot", "hub_parrot_env", "HubParrot"
    )
    with hub_server() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        server.make("owner/parrot-env", packages.files_of(project))
        yield server


def test_code_from_the_hub_is_not_installed_unasked(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(installing.InstallRefusedError, match="trust_remote_code=True") as caught:
        AutoEnv.from_env("owner/parrot-env")
    assert isinstance(caught.value, ValueError)
    assert hub.asked == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_person_at_a_terminal_is_asked_and_told_which_commit(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed: list[str] = []
    monkeypatch.setattr(installing, "_install_commit", lambda _, found: installed.append(found.sha))
    sha = hub.repositories["owner/parrot-env"].sha
    for answer, count in (("n\n", 0), ("\n", 0), ("", 0), ("yes\n", 1), ("Y\n", 2)):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        with pytest.raises(ValueError, match="owner/parrot-env"):
            AutoAction.from_env("owner/parrot-env")
        assert len(installed) == count
    assert set(installed) == {sha}
    said = capsys.readouterr().err
    assert "Install it? [y/N]" in said and f"the commit {sha} (main, of 2026-11-25)" in said


def test_what_the_hub_does_not_have_is_said(hub: HubServer) -> None:
    with pytest.raises(RepositoryNotFoundError, match="it does not exist"):
        AutoEnv.from_env("owner/nothing", trust_remote_code=True)
    with pytest.raises(RepositoryNotFoundError, match="the revision v9 of owner/parrot-env"):
        AutoEnv.from_env("owner/parrot-env@v9", trust_remote_code=True)
    hub.make("owner/empty", {"README.md": b""})
    with pytest.raises(ValueError, match=r"no pyproject\.toml"):
        AutoEnv.from_env("owner/empty", trust_remote_code=True)


@pytest.mark.extended("installs a package or starts a server; other tests show the choice")
@pytest.mark.slow
@pytest.mark.usefixtures("uv")
@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_a_package_of_the_hub_is_installed_once_and_played(
    hub: HubServer, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tool == "pip" and importlib.util.find_spec("pip") is None:
        pytest.skip("this Python has no pip")
    if tool == "pip":
        monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("OPENENV_TRUST_REMOTE_CODE", "1")
    with AutoEnv.from_env("owner/parrot-env") as client:
        assert type(client).__name__ == "HubParrotEnv"
        assert client.reset().observation.word == "hello"
    info = AutoEnv.get_env_info("hub_parrot")
    assert (info["package"], info["version"]) == ("openenv-hub-parrot", "0.3.0")
    assert not any("/resolve/" in one and ".git" in one for one in hub.asked)

    monkeypatch.setattr(installing, "_install_commit", lambda *_: pytest.fail("installed twice"))
    action = AutoAction.from_env(f"{hub.url}/spaces/owner/parrot-env")
    assert action.__name__ == "HubParrotAction"


@pytest.mark.slow
@pytest.mark.usefixtures("uv")
def test_the_commit_is_pinned_and_a_newer_one_is_said(
    hub: HubServer, site: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENENV_TRUST_REMOTE_CODE", "1")
    space = hub.repositories["owner/parrot-env"]
    first = space.sha
    AutoAction.from_env("owner/parrot-env")
    (note,) = site.glob("*.dist-info/direct_url.json")
    origin = json.loads(note.read_text())
    assert origin["url"] == f"{hub.url}/spaces/owner/parrot-env"
    assert origin["vcs_info"]["commit_id"] == first

    files = space.history[first]
    newer = files | {"pyproject.toml": files["pyproject.toml"].replace(b"0.3.0", b"0.4.0")}
    newer["backend.py"] = files["backend.py"].replace(b"0.3.0", b"0.4.0")
    second = space.add(newer)
    caplog.clear()
    AutoAction.from_env("owner/parrot-env")
    assert f"is at {second[:12]} now; {first[:12]} is installed" in caplog.text
    assert AutoEnv.get_env_info("hub_parrot")["version"] == "0.3.0"

    AutoAction.from_env(f"owner/parrot-env@{first}")  # which is there, and is not asked for
    shutil.rmtree(site / "hub_parrot_env")  # as `pip install --target` replaces nothing
    shutil.rmtree(note.parent)
    AutoAction.from_env("owner/parrot-env", revision=second)
    assert AutoEnv.get_env_info("hub_parrot")["version"] == "0.4.0"
    hub.fail("GET", 500)
    caplog.clear()
    AutoAction.from_env("owner/parrot-env")  # a Hub that fails keeps nobody from what is there
    assert caplog.text == ""


@pytest.mark.extended("installs a package or starts a server; other tests show the choice")
@pytest.mark.slow
@pytest.mark.usefixtures("uv")
def test_a_private_space_is_installed_by_who_may_see_it(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = hub.repositories["owner/parrot-env"]
    hub.make("acme/secret-env", space.history[space.sha], private=True)
    with pytest.raises(RepositoryNotFoundError, match="may not see it"):
        AutoEnv.from_env("acme/secret-env", trust_remote_code=True)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    with AutoEnv.from_env("acme/secret-env", trust_remote_code=True) as client:
        assert client.reset().observation.word == "hello"


def test_a_package_that_cannot_be_installed_says_why(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        installing, "_installer", lambda: [sys.executable, "-c", "raise SystemExit(3)"]
    )
    with pytest.raises(ValueError, match="could not be installed"):
        AutoEnv.from_env("owner/parrot-env", trust_remote_code=True)


def test_a_running_space_is_used_without_its_code(
    hub: HubServer, parrot: Path, serve: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = served("parrot_env", serve)
    monkeypatch.setattr(installing, "SPACE_URL", url)
    with AutoEnv.from_env("owner/parrot-env", skip_install=True) as client:
        assert isinstance(client, GenericEnvClient) and client.base_url == url
        assert client.reset().observation == {"metadata": {}, "word": "hello"}


def test_a_space_that_answers_at_its_root_only_runs(
    serve: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = FastAPI()
    app.get("/")(lambda: {})
    assert installing.answers(serve(app))
    assert not installing.answers(serve(FastAPI()))


def test_a_space_that_does_not_run_is_started_from_its_image(
    hub: HubServer,
    parrot: Path,
    serve: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    provider = FakeContainers(served("parrot_env", serve))
    client = AutoEnv.from_env("owner/parrot-env", skip_install=True, container_provider=provider)
    with client:
        client.reset()
    assert provider.calls[0][1] == "registry.hf.space/owner-parrot-env:latest"
    with pytest.raises(ProviderError, match="no engine answers"):
        AutoEnv.from_env("owner/unheard-of", skip_install=True).reset()
