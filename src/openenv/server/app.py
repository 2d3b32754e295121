"""Turning an environment class into a web application."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from openenv import settings
from openenv.execution.connections.harness import HarnessConnection, may_be_harness
from openenv.execution.limits import Limits
from openenv.execution.manager import ConcurrencyConfig, ServerCapacityStatus, SessionManager
from openenv.execution.principal import Key
from openenv.execution.process import Workers
from openenv.execution.recording import Recordings
from openenv.execution.session import SessionInfo
from openenv.execution.spec import EnvironmentSpec
from openenv.server.auth import KeyGuard, path_of
from openenv.server.home import HomeLoop
from openenv.server.http import control_routes
from openenv.server.info import info_routes
from openenv.server.keyfile import make_keyring
from openenv.server.mcp.endpoint import mcp_routes
from openenv.server.metrics import metrics_route
from openenv.server.origins import OriginGuard
from openenv.server.recording import Record, recording_options
from openenv.server.tasks import task_routes
from openenv.server.websocket import AdoptsUvicorn, websocket_route
from openenv.server.workers import managers_of, note_manager, spec_source
from openenv.settings import ServerMode, parse_mode, server_mode, web_interface_enabled
from openenv.tasks.served import ServedTasks

__all__ = ["HTTPEnvServer", "create_app", "create_fastapi_app"]

Factory = Callable[[], Any]


class HTTPEnvServer:
    """Serves an environment on routes of a FastAPI application.

    The arguments and the exceptions are those of `create_app`, without the mode and the options
    of the web page.

    Example:
        >>> from fastapi import FastAPI
        >>> from echo_env import EchoAction, EchoObservation
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import HTTPEnvServer
        >>> app = FastAPI()
        >>> HTTPEnvServer(EchoEnvironment, EchoAction, EchoObservation).register_routes(app)
        >>> "/ws" in {route.path for route in app.routes}
        True
    """

    def __init__(
        self,
        env: Factory,
        action_cls: Any = None,
        observation_cls: Any = None,
        max_concurrent_envs: int | None = None,
        concurrency_config: ConcurrencyConfig | None = None,
        env_name: str | None = None,
        state_cls: Any = None,
        *,
        reset_observation_cls: Any = None,
        workers: int | None = None,
        limits: Limits | None = None,
        record: Record | None = None,
        debug: bool | None = None,
        keys: Iterable[Key | str] | None = None,
        tasks: Any = None,
    ) -> None:
        if max_concurrent_envs is not None and concurrency_config is not None:
            raise ValueError("give max_concurrent_envs or concurrency_config, not both")
        if max_concurrent_envs is not None:
            concurrency_config = ConcurrencyConfig(max_concurrent_envs=max_concurrent_envs)
        self.spec = EnvironmentSpec.of(
            env,
            action_cls,
            observation_cls,
            state_cls=state_cls,
            reset_observation_cls=reset_observation_cls,
            name=env_name,
        )
        if tasks is not None:
            self.spec.tasks = tasks if isinstance(tasks, ServedTasks) else ServedTasks(tasks)
        self.manager = SessionManager(
            self.spec, concurrency_config, limits, debug=settings.debug(debug)
        )
        self.manager.keys = make_keyring(keys)
        self._workers = workers
        if workers is not None:
            spec_source(self.spec)  # raises if no other process can import the environment
        options = recording_options(record)
        if options is not None:
            self.manager.record_to(Recordings(options, self.spec))
        # Plain attributes, since existing subclasses set them.
        self.action_cls = self.spec.action_cls
        self.observation_cls = self.spec.observation_cls
        self.state_cls = self.spec.state_cls
        self._env_factory = env

    @property
    def env_name(self) -> str:
        """The environment's name in routes and messages."""
        return self.spec.name

    @property
    def reset_observation_cls(self) -> Any:
        """The observation model of `reset`."""
        return self.spec.reset_observation_cls or self.spec.observation_cls

    @property
    def active_sessions(self) -> int:
        """Number of slots in use."""
        return self.manager.active_sessions

    @property
    def max_concurrent_envs(self) -> int:
        """Number of slots."""
        return self.manager.max_sessions

    @property
    def is_concurrency_safe(self) -> bool:
        """Whether the class declares that several instances may exist at once."""
        return bool(self.spec.supports_concurrency)

    @property
    def concurrency_config(self) -> ConcurrencyConfig:
        """The concurrency limits in force."""
        return ConcurrencyConfig(
            max_concurrent_envs=self.manager.max_sessions,
            session_timeout=self.manager.idle_timeout_s,
        )

    def get_capacity_status(self) -> ServerCapacityStatus:
        """Return how full the server is."""
        return self.manager.capacity()

    def get_session_info(self, session_id: str) -> SessionInfo | None:
        """Return a description of a session; None for an unknown id."""
        return self.manager.info(session_id)

    def register_routes(self, app: FastAPI, mode: ServerMode | str = ServerMode.SIMULATION) -> None:
        """Add the routes to `app`, and close all sessions when `app` shuts down.

        Raises:
            ValueError: `mode` is neither simulation nor production.
        """
        self.spec.mode = parse_mode(mode)
        if self._workers is not None:
            workers = Workers(self.spec, self._workers, spec_source(self.spec))
            self.manager.run_on(workers)
            # An application that is called in this process, not served, is never shut down.
            weakref.finalize(app, workers.abandon, os.getpid()).atexit = False
        first = len(app.router.routes)
        app.router.routes.append(websocket_route(self.manager))
        routes, endpoint = mcp_routes(self.manager)
        app.router.routes.extend(routes)
        # Not `include_router`: since FastAPI 0.165 it hides the routes from `app.routes`.
        if self.spec.mode is ServerMode.SIMULATION:
            app.router.routes.extend(control_routes(self.manager).routes)
            app.router.routes.extend(task_routes(self.manager).routes)
        elif may_be_harness(self.spec):
            harness = websocket_route(self.manager, "/harness", HarnessConnection)
            app.router.routes.append(harness)
        app.router.routes.extend(info_routes(self.manager).routes)
        app.router.routes.append(metrics_route(self.manager))
        home = HomeLoop(self.manager, endpoint)
        home.keep(app.router.routes[first:])
        app.state.openenv_homes = [*getattr(app.state, "openenv_homes", ()), home]
        weakref.finalize(app, home.end).atexit = False  # at exit `_end_all` ends the home loops
        app.add_middleware(
            KeyGuard,
            keys=self.manager.keys,
            manager=self.manager,
            public_schema=settings.public_schema(),
        )
        app.add_middleware(OriginGuard, manager=self.manager)
        app.add_middleware(AdoptsUvicorn, manager=self.manager)
        note_manager(app, self.manager)
        _close_at_shutdown(app, home)


def _close_at_shutdown(app: FastAPI, home: HomeLoop) -> None:
    inner = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
        async with inner(app) as state:
            home.enter()
            try:
                yield state
            finally:
                await home.leave()

    app.router.lifespan_context = lifespan


def create_fastapi_app(
    env: Factory,
    action_cls: Any = None,
    observation_cls: Any = None,
    max_concurrent_envs: int | None = None,
    concurrency_config: ConcurrencyConfig | None = None,
    env_name: str | None = None,
    state_cls: Any = None,
    *,
    mode: ServerMode | str | None = None,
    reset_observation_cls: Any = None,
    workers: int | None = None,
    limits: Limits | None = None,
    record: Record | None = None,
    debug: bool | None = None,
    keys: Iterable[Key | str] | None = None,
    tasks: Any = None,
) -> FastAPI:
    """Build an application that serves `env`, without a web page.

    The arguments are those of `create_app`, without the options of the web page.
    """
    chosen = server_mode(mode)
    server = HTTPEnvServer(
        env,
        action_cls,
        observation_cls,
        max_concurrent_envs,
        concurrency_config,
        env_name,
        state_cls,
        reset_observation_cls=reset_observation_cls,
        workers=workers,
        limits=limits,
        record=record,
        debug=debug,
        keys=keys,
        tasks=tasks,
    )
    app = FastAPI(title="OpenEnv Environment HTTP API", version="1.0.0")
    server.register_routes(app, chosen)
    # Used if no route matches, so that routes added later, by the web page or a user, come first.
    app.router.default = _RootRedirect(app, app.router.default)
    return app


class _RootRedirect:
    """Redirects browsers from ``/`` to the documentation of the routes."""

    def __init__(self, app: FastAPI, otherwise: ASGIApp) -> None:
        self._app = app
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._otherwise
        # Other clients get the answer of the public package: there is nothing at this path.
        if scope["type"] == "http" and "text/html" in Headers(scope=scope).get("accept", ""):
            path = path_of(scope)
            is_read = scope["method"] in ("GET", "HEAD")
            if is_read and path in ("", "/") and self._app.docs_url:
                # Relative, so that it is correct under the path at which a proxy mounts the server.
                answer = RedirectResponse(f".{self._app.docs_url}")
        await answer(scope, receive, send)


def create_app(
    env: Factory,
    action_cls: Any = None,
    observation_cls: Any = None,
    env_name: str | None = None,
    max_concurrent_envs: int | None = None,
    concurrency_config: ConcurrencyConfig | None = None,
    gradio_builder: Callable[..., Any] | None = None,
    custom_tab_name: str = "Custom",
    custom_tab_primary: bool = False,
    show_default_tab: bool = True,
    title_override: str | None = None,
    state_cls: Any = None,
    *,
    mode: ServerMode | str | None = None,
    reset_observation_cls: Any = None,
    workers: int | None = None,
    limits: Limits | None = None,
    record: Record | None = None,
    debug: bool | None = None,
    keys: Iterable[Key | str] | None = None,
    tasks: Any = None,
    web: bool | None = None,
) -> FastAPI:
    """Build an application that serves `env`.

        app = create_app(MyEnvironment, MyAction, MyObservation)

    Args:
        env: The environment class, or a callable that makes an instance for each session.
        action_cls: The action model, or a union of several. Default: read from the class.
        observation_cls: The observation model. Default: read from the class.
        env_name: The environment's name. Default: the name of the class or function.
        max_concurrent_envs: Maximum number of sessions at once. Default: 64 if the class declares
            ``SUPPORTS_CONCURRENT_SESSIONS = True``, else 1.
        concurrency_config: Further limits; cannot be combined with `max_concurrent_envs`.
        gradio_builder: Builds a Gradio page that becomes a tab of the web page, and turns the web
            page on by default. Needs ``pip install
            'openenv[web]'``.
        custom_tab_name: Title of the tab of `gradio_builder`.
        custom_tab_primary: Show that tab first.
        show_default_tab: Show the generated tab.
        title_override: Title of the page.
        state_cls: The state model. Default: read from the class.
        mode: ``simulation`` or ``production``. Default: OPENENV_MODE, else simulation.
        reset_observation_cls: The observation model of `reset`, if it differs.
        workers: Number of worker processes that hold the environments; by default this process
            holds them. Workers must be able to import `env` and the models: not from ``__main__``.
        limits: Times, lengths and sizes. Default: the settings.
        record: Record every session in this directory, or with these options. Default:
            OPENENV_RECORD.
        debug: Send clients the text of every exception, not only its class and an incident id.
            Default: OPENENV_DEBUG, else off.
        keys: The keys that clients must send: strings, or `openenv.server.Key` with a role and
            limits. Default: the keys of OPENENV_API_KEY and OPENENV_API_KEY_FILE. Without any key
            the server admits everyone.
        tasks: The tasks that `reset` can begin: a `Taskset`, a dict of tasksets by split, or any
            source that `openenv.tasks.load_tasks` accepts, with all its splits. Default: the
            environment's own tasks, if any.
        web: Serve the web page. Default: ENABLE_WEB_INTERFACE, or true if there is a
            `gradio_builder`.

    Raises:
        TypeError: `env` is not callable, or its models are not declared; or `workers` is given, and
            another process cannot import the environment.
        KeyFileError: The key file cannot be used.
        MissingPackage: `gradio_builder` is given, but Gradio is not installed.
        TasksetError: The tasks cannot be loaded.
        ValueError: The arguments contradict each other, or the mode is unknown.
        ConcurrencyConfigurationError: More sessions are requested than the class allows.

    Example:
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import GenericEnvClient, create_app
        >>> app = create_app(EchoEnvironment, max_concurrent_envs=8)
        >>> with GenericEnvClient.local(app).sync() as env:
        ...     env.reset().done
        False
    """
    app = create_fastapi_app(
        env,
        action_cls,
        observation_cls,
        max_concurrent_envs,
        concurrency_config,
        env_name,
        state_cls,
        mode=mode,
        reset_observation_cls=reset_observation_cls,
        workers=workers,
        limits=limits,
        record=record,
        debug=debug,
        keys=keys,
        tasks=tasks,
    )
    if web is None:
        web = web_interface_enabled() or gradio_builder is not None
    if web:
        from openenv.web import add_web_page

        (manager,) = managers_of(app)
        add_web_page(
            app,
            manager,
            title=title_override,
            gradio_builder=gradio_builder,
            custom_tab_name=custom_tab_name,
            custom_tab_primary=custom_tab_primary,
            show_default_tab=show_default_tab,
        )
    return app
