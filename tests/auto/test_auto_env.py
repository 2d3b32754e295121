"""Environments by name: what is found, which classes, and where the client's server is."""

from __future__ import annotations

import importlib
import importlib.util
import io
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
from support.packages import make_distribution, make_package

from openenv.auto import AutoAction, AutoEnv, _discovery, _hub
from openenv.auto._discovery import UnknownEnvironmentError, get_discovery, reset_discovery
from openenv.auto.auto_env import ServerUnreachableError
from openenv.client import GenericAction, GenericEnvClient
from openenv.errors import ConnectError, ProviderError
from openenv.mcp.types import CallToolAction
from openenv.providers import ContainerProvider, ProcessProvider, RuntimeProvider

pytestmark = pytest.mark.slow  # most start servers in processes of their own


SOURCE = Path(_discovery.__file__).parents[2]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on `sys.path`; what is imported from it is forgotten afterwards."""
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)
    before = set(sys.modules)
    reset_discovery()
    yield directory
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    reset_discovery()


@pytest.fixture
def parrot(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed environment that can be served by another process."""
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    make_distribution(site, "openenv-parrot-env", "2.1", "Says what it is told")
    return make_package(site, "parrot_env", "Parrot")


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
    monkeypatch.setattr(_discovery, "_find_environments", dict)
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
    find = _discovery._find_environments

    def counting() -> dict[str, _discovery.EnvironmentInfo]:
        looked.append(1)
        return find()

    monkeypatch.setattr(_discovery, "_find_environments", counting)
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
        ("finrl_env", "FinRL"),
        ("dipg_safety_env", "DIPGSafety"),
        ("dm_control_env", "DMControl"),
        ("textarena_env", "TextArena"),
        ("tbench2_env", "Tbench2"),
        ("repl_env", "REPL"),
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
            from openenv.mcp.types import CallToolAction, CallToolObservation
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
    monkeypatch.setattr(_hub, "answers", lambda *_: False)
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
    assert _hub.is_hub_name(name)
    assert _hub.repo_id_of(name) == "owner/parrot-env"


@pytest.mark.parametrize("name", ["/etc/passwd", "owner/", "/x", "a b/c", "--x/y", "ftp://a/b"])
def test_what_names_no_space_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="names no Space"):
        AutoEnv.from_env(name)


def test_a_space_has_an_address_an_image_and_a_repository() -> None:
    assert _hub.space_url("Owner/Parrot_Env.v2") == "https://owner-parrot-env-v2.hf.space"
    assert _hub.space_image("Owner/Parrot_Env") == "registry.hf.space/owner-parrot-env:latest"
    assert _hub.source_url("o/n") == "https://huggingface.co/spaces/o/n"


@pytest.fixture
def hub(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of git repositories in the Hub's place; packages are installed into `site`."""
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    monkeypatch.setattr(_hub, "HUB_URL", f"file://{tmp_path}/hub")
    monkeypatch.setattr(_hub, "SPACE_URL", f"http://127.0.0.1:{free_port()}/{{subdomain}}")
    installer = _hub._installer
    extra = ["--target", str(site), "--no-deps"]
    monkeypatch.setattr(_hub, "_installer", lambda: [*installer(), *extra])
    packages.make_repository(
        tmp_path / "hub" / "spaces" / "owner" / "parrot-env",
        "openenv-hub-parrot",
        "hub_parrot_env",
        "HubParrot",
    )
    return tmp_path / "hub"


def test_code_from_the_hub_is_not_installed_unasked(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(_hub.InstallRefusedError, match="trust_remote_code=True") as caught:
        AutoEnv.from_env("owner/parrot-env")
    assert isinstance(caught.value, ValueError)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_person_at_a_terminal_is_asked(
    hub: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed: list[str] = []
    monkeypatch.setattr(_hub, "_install_from", installed.append)
    for answer, count in (("n\n", 0), ("\n", 0), ("", 0), ("yes\n", 1), ("Y\n", 2)):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        with pytest.raises(ValueError, match="owner/parrot-env"):
            AutoAction.from_env("owner/parrot-env")
        assert len(installed) == count
    assert "Install it? [y/N]" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("uv")
@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_a_package_of_the_hub_is_installed_once_and_played(
    hub: Path, tool: str, monkeypatch: pytest.MonkeyPatch
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

    monkeypatch.setattr(_hub, "_install_from", lambda url: pytest.fail("installed twice"))
    action = AutoAction.from_env("https://huggingface.co/spaces/owner/parrot-env")
    assert action.__name__ == "HubParrotAction"


def test_a_package_that_cannot_be_installed_says_why(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_hub, "_installer", lambda: [sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(ValueError, match="could not be installed"):
        AutoEnv.from_env("owner/parrot-env", trust_remote_code=True)


def test_a_running_space_is_used_without_its_code(
    hub: Path, parrot: Path, serve: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = served("parrot_env", serve)
    monkeypatch.setattr(_hub, "SPACE_URL", url)
    with AutoEnv.from_env("owner/parrot-env", skip_install=True) as client:
        assert isinstance(client, GenericEnvClient) and client.base_url == url
        assert client.reset().observation == {"metadata": {}, "word": "hello"}


def test_a_space_that_answers_at_its_root_only_runs(
    serve: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = FastAPI()
    app.get("/")(lambda: {})
    assert _hub.answers(serve(app))
    assert not _hub.answers(serve(FastAPI()))


def test_a_space_that_does_not_run_is_started_from_its_image(
    hub: Path,
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
