"""What a name may be: an entry point, a directory, a server, an image; a client as its class."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from support import packages
from support.packages import make_distribution, make_package

from openenv.auto import AutoAction, AutoEnv
from openenv.client import EnvClient, GenericAction, GenericEnvClient
from openenv.hub.auto_env import ServerUnreachableError
from openenv.hub.discovery import NoEnvironmentError, UnknownEnvironmentError, get_discovery
from openenv.providers import ProcessProvider
from openenv.tools.types import CallToolAction

pytestmark = pytest.mark.slow  # each looks through all that is installed

ENVIRONMENTS = Path(__file__).resolve().parents[2] / "envs"

NOBODY = "http://127.0.0.1:9"  # the port of a service that discards, and that nobody runs


# ------------------------------------------------------------------ the public environments

TOOLS = """
from openenv.core.mcp_client import MCPToolClient


class {client}(MCPToolClient):
    pass
"""


@pytest.mark.parametrize(
    ("package", "client"),
    [
        ("coding_tools_env", "CodingToolsEnv"),
        ("jupyter_env", "JupyterEnv"),
        ("terminus_env", "TerminusEnv"),
        ("opencode_env", "OpenCodeEnv"),
        ("finqa_env", "FinQAEnv"),
    ],
)
def test_environments_of_tools_without_an_action_of_their_own(
    site: Path, package: str, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)  # ours, where another test has imported it
    make_distribution(site, f"openenv-{package}")
    make_package(site, package, "X", models="", client=TOOLS.format(client=client))
    assert AutoEnv.get_env_class(package).__name__ == client
    assert AutoAction.from_env(package) is CallToolAction


def test_an_environment_of_another_name_than_its_client(site: Path) -> None:
    """agent_world_model_env, whose distribution lacks the prefix, and whose client is AWMEnv."""
    manifest = "spec_version: 1\nname: agent_world_model_env\n"
    client = TOOLS.format(client="AWMEnv")
    make_package(site, "agent_world_model_env", "AWM", manifest, client=client)
    make_distribution(site, "agent-world-model-env", record="agent_world_model_env/client.py")
    assert AutoEnv.get_env_class("agent-world-model").__name__ == "AWMEnv"
    assert AutoAction.from_env("agent_world_model_env").__name__ == "AWMAction"


def test_a_distribution_without_the_prefix_whose_manifest_names_it(site: Path) -> None:
    make_package(site, "grid_world_env", "GridWorld", "name: grid_world_env\n")
    make_distribution(site, "grid-world-env", record="grid_world_env/client.py")
    assert AutoEnv.get_env_class("grid_world").__name__ == "GridWorldEnv"
    assert AutoAction.from_env("grid-world-env").__name__ == "GridWorldAction"


def test_a_client_in_small_letters_of_a_package_without_the_ending(site: Path) -> None:
    """kernrl, whose client class is called kernrl_env."""
    client = TOOLS.format(client="kernrl_env")
    make_package(site, "kernrl", "Kernrl", "name: kernrl\n", client=client)
    make_distribution(site, "openenv-kernrl")
    assert AutoEnv.get_env_class("kernrl").__name__ == "kernrl_env"


# ------------------------------------------------------------------ entry points


def declare(site: Path, distribution: str, points: str) -> None:
    directory = make_distribution(site, distribution, "4.2", "Birds that talk")
    text = f"[openenv.environments]\n{textwrap.dedent(points)}"
    (directory / "entry_points.txt").write_text(text)


def test_an_entry_point_names_a_package(site: Path) -> None:
    make_package(site, "birds", "Parrot", "name: parrot\n")
    declare(site, "all-birds", "grey-parrot = birds")
    info = AutoEnv.get_env_info("grey_parrot")
    assert (info["package"], info["version"]) == ("all-birds", "4.2")
    assert (info["name"], info["module"]) == ("grey_parrot_env", "birds.client")
    assert AutoEnv.get_env_class("grey-parrot").__name__ == "ParrotEnv"
    assert list(get_discovery().discover()).count("parrot") == 0


def test_entry_points_name_classes_of_one_package(site: Path) -> None:
    make_package(site, "birds", "Parrot")
    packages.write(
        site / "birds",
        {
            "more.py": """
                from openenv.client import EnvClient
                from .models import ParrotAction
                class Heron(EnvClient): ...
            """
        },
    )
    declare(site, "all-birds", "parrot = birds.client:ParrotEnv\nheron = birds.more:Heron\n")
    assert AutoEnv.get_env_class("parrot").__name__ == "ParrotEnv"
    assert AutoEnv.get_env_class("heron").__name__ == "Heron"
    assert AutoAction.from_env("parrot").__name__ == "ParrotAction"


def test_an_entry_point_to_nowhere_harms_no_other(site: Path) -> None:
    make_package(site, "grid_env", "Grid", "name: grid\n")
    declare(site, "gone", "gone = no_such_package.client:Gone")
    assert {"gone", "grid"} <= set(get_discovery().discover())
    with pytest.raises(ImportError, match="no_such_package"):
        AutoEnv.get_env_class("gone")


@pytest.mark.extended("installs a package or starts a server; other tests show the choice")
def test_an_environment_of_an_entry_point_is_served(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_package(site, "birds", "Parrot")
    declare(site, "all-birds", "macaw = birds.client:ParrotEnv")
    with AutoEnv.from_env("macaw") as env:
        assert env.reset().observation.word == "hello"


def test_a_manifest_that_is_changed_is_read_again(site: Path) -> None:
    directory = make_package(site, "grid_env", "Grid", "name: grid\nversion: 1.0.0\n")
    assert AutoEnv.get_env_info("grid")["version"] == "1.0.0"
    (directory / "openenv.yaml").write_text("name: grid\nversion: 2.0.0\n")
    os.utime(directory / "openenv.yaml", ns=(1, time.time_ns() + 10**9))
    assert AutoEnv.get_env_info("grid")["version"] == "2.0.0"


# ------------------------------------------------------------------ directories


@pytest.fixture
def checkout(tmp_path: Path, site: Path) -> Path:
    """A directory that is no installed package, nor on `sys.path`."""
    return make_package(tmp_path / "somewhere", "macaw_env", "Macaw", "name: macaw_env\n")


def test_a_directory_is_served_and_has_its_own_client(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout.parent)
    with AutoEnv.from_env("./macaw_env", env_vars={"PARROT_GREETING": "ahoy"}) as env:
        assert type(env).__name__ == "MacawEnv"
        assert env.reset().observation.word == "ahoy"
    action = AutoAction.from_env(checkout)
    assert action.__module__ == "macaw_env.models"


def test_a_directory_without_its_code_has_a_generic_client(checkout: Path) -> None:
    client = AutoEnv.from_env(str(checkout), skip_install=True)
    assert isinstance(client, GenericEnvClient) and "macaw_env" not in sys.modules
    with client as env:
        assert env.reset().observation["word"] == "hello"


def test_a_directory_may_have_any_name(checkout: Path) -> None:
    moved = checkout.rename(checkout.with_name("my-checkout 2"))
    assert AutoEnv.from_env(moved).__class__.__name__ == "MacawEnv"


def test_a_directory_without_an_init_is_a_package_too(checkout: Path) -> None:
    (checkout / "__init__.py").unlink()
    assert AutoEnv.from_env(checkout).__class__.__name__ == "MacawEnv"


def test_two_packages_of_one_name_are_told_apart(checkout: Path, tmp_path: Path) -> None:
    other = make_package(tmp_path / "elsewhere", "macaw_env", "Macaw", "name: macaw_env\n")
    AutoEnv.from_env(checkout)
    with pytest.raises(ImportError, match=r"elsewhere.*is imported from .*somewhere"):
        AutoEnv.from_env(other)


def test_a_directory_that_is_none_says_which_was_meant(checkout: Path) -> None:
    with pytest.raises(NoEnvironmentError, match=r"is not a directory.*Did you mean .*macaw_env"):
        AutoEnv.from_env(checkout.with_name("macau_env"))
    with pytest.raises(NoEnvironmentError, match=r"has no openenv\.yaml"):
        AutoEnv.from_env(checkout / "server")


def test_a_directory_that_fails_to_import_leaves_nothing_behind(checkout: Path) -> None:
    (checkout / "__init__.py").write_text("import no_such_library\n")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_library"):
            AutoEnv.from_env(checkout)
    assert "macaw_env" not in sys.modules


# ------------------------------------------------------------------ servers


def served(module: str, serve: Callable[[Any], str]) -> str:
    return serve(importlib.import_module(f"{module}.server.app").app)


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_a_server_of_an_installed_environment_has_its_client(
    parrot: Path, serve: Callable[[Any], str], scheme: str
) -> None:
    url = served("parrot_env", serve).replace("http", scheme, 1)
    with AutoEnv.from_env(url) as env:
        assert type(env).__name__ == "ParrotEnv"
        assert env.reset().observation.word == "hello"


def test_a_server_of_anything_else_has_a_generic_client(
    checkout: Path, serve: Callable[[Any], str]
) -> None:
    AutoEnv.from_env(checkout)  # imports its package
    with AutoEnv.from_env(served("macaw_env", serve)) as env:
        assert type(env) is GenericEnvClient
        assert env.reset().observation["word"] == "hello"


def test_without_code_a_server_is_not_even_asked_who_it_is(serve: Callable[[Any], str]) -> None:
    asked: list[str] = []
    app = FastAPI()

    @app.middleware("http")
    async def note(request: Any, call_next: Any) -> Any:
        asked.append(request.url.path)
        return await call_next(request)

    app.get("/health")(lambda: {})
    assert type(AutoEnv.from_env(serve(app), skip_install=True)) is GenericEnvClient
    assert asked == ["/health"]


@pytest.mark.parametrize("told", ["[]", '{"name": 3}', "{", '{"name": "../../etc"}'])
def test_what_a_server_says_of_itself_may_be_nonsense(
    told: str, serve: Callable[[Any], str]
) -> None:
    from fastapi import Response

    app = FastAPI()
    app.get("/health")(lambda: {})
    app.get("/metadata")(lambda: Response(told, media_type="application/json"))
    assert type(AutoEnv.from_env(serve(app))) is GenericEnvClient


def test_a_server_that_sends_elsewhere_is_not_followed(serve: Callable[[Any], str]) -> None:
    from fastapi.responses import RedirectResponse

    seen: list[str | None] = []
    other, app = FastAPI(), FastAPI()

    @other.middleware("http")
    async def note(request: Any, call_next: Any) -> Any:
        seen.append(request.headers.get("authorization"))
        return await call_next(request)

    elsewhere = serve(other)
    app.get("/health")(lambda: {})
    app.get("/metadata")(lambda: RedirectResponse(f"{elsewhere}/metadata"))
    AutoEnv.from_env(serve(app), api_key="very-secret-key")
    assert seen == []


def test_a_server_that_is_not_there_is_an_error_at_once() -> None:
    with pytest.raises(ServerUnreachableError, match="no server answers"):
        AutoEnv.from_env(NOBODY)


def test_an_address_and_another_place_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="says where the environment is already"):
        AutoEnv.from_env(NOBODY, base_url="http://localhost:8000")
    with pytest.raises(ValueError, match="says where the environment is already"):
        AutoEnv.from_env("docker://a:1", docker_image="b:2")


@pytest.mark.parametrize("name", ["server:app", "echo-env:latest"])
def test_a_name_with_a_colon_says_how_addresses_and_images_are_written(name: str) -> None:
    with pytest.raises(UnknownEnvironmentError, match=r"http://.*docker://"):
        AutoEnv.from_env(name)


# ------------------------------------------------------------------ images


def test_an_image_of_an_installed_environment_has_its_client(parrot: Path) -> None:
    client = AutoEnv.from_env("docker://ghcr.io/me/parrot-env:1.2")
    assert type(client).__name__ == "ParrotEnv" and client.base_url is None
    assert type(AutoEnv.from_env("docker://heron-env:1")) is GenericEnvClient
    assert type(AutoEnv.from_env("docker://parrot-env", skip_install=True)) is GenericEnvClient


# ------------------------------------------------------------------ a client is its class too


def test_what_comes_is_used_as_a_class(parrot: Path, serve: Callable[[Any], str]) -> None:
    url = served("parrot_env", serve)
    ParrotEnv = AutoEnv.from_env("parrot")
    with ParrotEnv(base_url=url) as env:
        assert env.reset().observation.word == "hello"

    async def main() -> str:
        async with ParrotEnv(base_url=url, message_timeout_s=5.0) as env:
            result = await env.reset()
            return str(result.observation.word)

    assert asyncio.run(main()) == "hello"
    made: EnvClient[Any, Any, Any] = ParrotEnv(base_url=url)
    assert type(made) is AutoEnv.get_env_class("parrot")


def test_nothing_is_left_of_what_was_used_as_a_class_only(
    parrot: Path, serve: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = served("parrot_env", serve)
    started: list[object] = []
    monkeypatch.setattr(ProcessProvider, "_spawn", lambda *_: started.append(1))
    threads, files = threading.active_count(), _open_files()
    for _ in range(20):
        AutoEnv.from_env("parrot")(base_url=url)
    gc.collect()  # what is dropped unused warns of nothing, or the test fails
    assert (threading.active_count(), _open_files(), started) == (threads, files, [])


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def test_the_generic_action_goes_with_what_has_no_package() -> None:
    assert AutoAction.from_env("heron/heron-env", skip_install=True) is GenericAction


def test_our_own_environments_are_found_by_their_directories() -> None:
    for directory in sorted(path.parent for path in ENVIRONMENTS.glob("*/openenv.yaml")):
        client = AutoEnv.from_env(directory)
        assert type(client).__name__.endswith("Env"), directory
