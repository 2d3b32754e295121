"""An MCP client's binding to a session, with the client's permissions.

Sessions here are OpenEnv sessions, not MCP sessions. An agent acts on one of these sessions:

- the session that its key is bound to, or that its address names (``?session_id=``, or the header
  ``OpenEnv-Session-Id``). Another client drives that session: resets it, scores it, closes it.
- otherwise a session that is opened for the agent when it first needs one. Up to revision
  2025-11-25 each MCP session gets its own. Later revisions have no MCP sessions: all agents that
  name no session share one (one per key, if the server has keys), as they would any MCP server.

In a session that was opened for agents no one else begins episodes. So the first episode begins at
once (in simulation; in production there are no resets). After an episode has ended, the next call
is not carried out: it begins another episode and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from openenv._internal.incidents import describe_error
from openenv._internal.traces import serving
from openenv.errors import (
    EnvironmentCrashed,
    InvalidActionError,
    OpenEnvError,
    Refused,
    SessionClosedError,
)
from openenv.execution.commands import CallMethod, GetTransition, Reset
from openenv.execution.manager import SessionManager
from openenv.execution.principal import Principal, Role
from openenv.execution.session import Session, SessionPhase
from openenv.execution.spec import ASK, EnvironmentSpec, ToolSupport, class_made_by
from openenv.execution.tools import (
    ToolOutcome,
    action_tools,
    build_call_command,
    build_list_command,
    read_outcome,
    read_tools,
    show_transition,
)
from openenv.manifest import MANIFEST
from openenv.protocol.messages import Transition
from openenv.settings import ServerMode
from openenv.tools.progress import OnProgress
from openenv.tools.results import build_failure

MAX_SUBSCRIBED = 1000  # resources per agent
REWARD, DONE, TRUNCATED = "openenv/reward", "openenv/done", "openenv/truncated"


class SessionEnded(Refused):
    """The session that was opened for the agent has ended; the next call opens another one."""


class Reporter:
    """Reports the progress of a call to the agent, while the tool runs on this server's event loop.

    The reporter is passed to the environment. An environment in another process gets a copy that
    reports nothing.
    """

    def __init__(self, tell: OnProgress | None = None) -> None:
        self._tell = tell
        self.has_reported = False

    async def __call__(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        self.has_reported = True
        if self._tell is not None:
            await self._tell(progress, total, message)

    def __reduce__(self) -> tuple[type[Reporter], tuple[()]]:
        return Reporter, ()


class AgentBinding:
    """An MCP client's binding to a session, with permissions.

    Args:
        principal: The agent's principal, if the server has keys.
        named: The session to act on; if None, a session is opened for the agent.

    Attributes:
        listed: Digests of the lists that the client last received: of tools, resources and prompts.
        subscribed: The resources that the client has subscribed to.
        hears: The client listens for messages that the server sends unasked.
        used_at: When the binding was last used, by `time.monotonic`.
    """

    def __init__(
        self, manager: SessionManager, principal: Principal | None, named: str | None = None
    ) -> None:
        self._manager = manager
        self._principal = principal
        self._named = named
        self._session: Session | None = None
        self._opening: asyncio.Lock = asyncio.Lock()
        self._is_over = False
        self._serverless: str | None = None  # a session whose environment has no MCP server
        self.listed: dict[str, bytes] = {}
        self.subscribed: set[str] = set()
        self.hears = False
        self.used_at = time.monotonic()

    @property
    def current(self) -> Session | None:
        """The bound session if it is open; otherwise None."""
        session = self._session
        if self._named is not None:
            with contextlib.suppress(OpenEnvError):
                session = self._manager.get(self._named, principal=self._principal)
        return session if session is not None and session.phase is SessionPhase.OPEN else None

    @property
    def may_see_rewards(self) -> bool:
        """Whether the client may see rewards: an agent's key may not."""
        return self._principal is None or self._principal.role is not Role.AGENT

    # ------------------------------------------------------------------ the session

    async def session(self) -> Session:
        """Return the bound session, and open a session if necessary.

        Raises:
            SessionNotFoundError: The named session does not exist.
            SessionEnded: The session that was opened for the agent has ended.
            OpenEnvError: No session can be opened.
        """
        self.used_at = time.monotonic()
        if self._named is not None:
            return self._manager.get(self._named, principal=self._principal)
        async with self._opening:
            session = self._session
            if session is None:
                self._session = session = await self._open()
            elif session.phase is not SessionPhase.OPEN:
                self._session = None
                why = WHY.get(session.closed_by, "closed")
                raise SessionEnded(
                    f"the environment's session has ended ({why}), and what was done in it is "
                    "gone; the next call begins a new one"
                )
        return session

    async def _open(self) -> Session:
        session = await self._manager.create(provisional=True, principal=self._principal)
        try:
            await self._begin(session)
        except BaseException:
            self._manager.begin_to_close(session)
            raise
        return session

    async def _begin(self, session: Session) -> dict[str, Any]:
        """Begin an episode; return the first observation as the agent sees it."""
        self._is_over = False
        if self._manager.spec.mode is ServerMode.PRODUCTION:
            return {"content": []}
        shown: dict[str, Any] = await session.handle(Reset(), encode=show_transition)
        return shown

    async def close(self) -> None:
        """Leave the session; close it if it was opened for the agent."""
        session, self._session = self._session, None
        if session is not None:
            await self._manager.close(session.id)

    # ------------------------------------------------------------------ requests of the agent

    async def tools(self) -> list[dict[str, Any]]:
        """Return the tools in their wire form."""
        spec = self._manager.spec
        if spec.environment_class is None or spec.tool_support is not ToolSupport.ACTIONS:
            session = await self.session()
            command = build_list_command(session.spec)
            if command is not None:
                found: list[dict[str, Any]] = await session.handle(command, encode=read_tools)
                return found
        return [tool.description for tool in action_tools(spec).values()]

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout_s: float | None = None,
        reporter: Reporter | None = None,
        trace: str | None = None,
    ) -> dict[str, Any]:
        """Call a tool. The failure of a call is returned as a result.

        Args:
            timeout_s: Seconds that the call may take; None for the environment's own limit.
            reporter: Receives reports of progress.
            trace: The parent span, as a W3C `traceparent`.

        Raises:
            LookupError: There is no tool with this name.
            OpenEnvError: No session is available for the call.
        """
        session = await self.session()
        if self._is_over and self._named is None:
            async with self._opening:
                if self._is_over:  # no other call has begun an episode meanwhile
                    return _report_new_episode(await self._begin(session))
        try:
            command = build_call_command(session.spec, name, arguments, timeout_s, reporter)
        except InvalidActionError as error:
            why = "; ".join(
                f"{'.'.join(map(str, one['loc']))}: {one['msg']} (got {one.get('input')!r:.100})"
                for one in error.errors
            )
            return build_failure(f"{name}: {why}")
        try:
            with serving("openenv.tools", trace, session.attributes()) as span:
                called = session.handle(command, encode=read_outcome, trace=span)
                outcome: ToolOutcome = await called
        except EnvironmentCrashed as error:
            await self._manager.close(session.id)
            return build_failure(describe_error(error, debug=self._manager.debug))
        except SessionClosedError as error:
            raise SessionEnded(describe_error(error)) from error
        except Exception as error:
            self._manager.counters.failed(error)
            return build_failure(describe_error(error, debug=self._manager.debug))
        failure = (outcome.observation or {}).get("error")
        if failure and failure.get("error_type") == "tool_not_found":
            raise LookupError(failure["message"])
        self._is_over = outcome.done
        if self.may_see_rewards:
            _note_score(outcome)
        return outcome.result

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer of the environment's MCP server; None if it has no such server.

        Raises:
            ServerRefused: The environment's server answered with an error.
        """
        spec = self._manager.spec
        if spec.environment_class is not None and spec.tool_support is not ToolSupport.TOOLS:
            return None
        session = await self.session()
        if session.spec.tool_support is not ToolSupport.TOOLS or self._serverless == session.id:
            return None
        command = CallMethod(ASK, (method, dict(params)))
        answer: dict[str, Any] | None = await session.handle(command)
        if answer is None:
            self._serverless = session.id
        return answer

    def subscribe(self, uri: str) -> None:
        """Notify the agent when a resource may have changed.

        Raises:
            Refused: The agent has too many subscriptions already.
        """
        if len(self.subscribed) >= MAX_SUBSCRIBED:
            raise Refused(f"an agent may subscribe to {MAX_SUBSCRIBED} resources at most")
        self.subscribed.add(uri)

    async def look(self) -> dict[str, Any] | None:
        """Return the last transition as a tool result; None before the first."""
        session = await self.session()
        shown: dict[str, Any] | None = await session.handle(GetTransition(), encode=_show_if_any)
        return shown

    async def described(self) -> dict[str, Any]:
        """Return the environment's metadata: name, description and so on."""
        session = await self.session()
        command = CallMethod("get_metadata")
        described: dict[str, Any] = await session.handle(command, encode=_to_dict)
        return described


WHY = {
    "idle": "nobody used it for too long",
    "evicted": "room was needed for another one while it was idle",
    "crashed": "its process died",
    "shutdown": "the server is shutting down",
}


def _note_score(outcome: ToolOutcome) -> None:
    meta: dict[str, Any] = {}
    if outcome.done:
        meta[DONE] = True
    if outcome.reward is not None:
        meta[REWARD] = outcome.reward
    if outcome.truncated:
        meta[TRUNCATED] = True
    if meta:
        outcome.result["_meta"] = {**(outcome.result.get("_meta") or {}), **meta}


def _report_new_episode(shown: dict[str, Any]) -> dict[str, Any]:
    text = (
        "The episode was over, so this call was not carried out. A new episode has begun; this is "
        "what it shows:"
    )
    return {
        "content": [{"type": "text", "text": text}, *shown.get("content", ())],
        "isError": True,
    }


def _show_if_any(transition: Transition | None) -> dict[str, Any] | None:
    return None if transition is None else show_transition(transition)


def _to_dict(described: Any) -> dict[str, Any]:
    plain: dict[str, Any] = from_json(to_json(described, serialize_unknown=True))
    return plain


def digest_of(listed: list[dict[str, Any]]) -> bytes:
    """Return a digest of a list of tools, resources or prompts, which reveals changes."""
    return hashlib.blake2b(to_json(listed), digest_size=16).digest()


def readme_of(spec: EnvironmentSpec) -> str | None:
    """Return the README of an environment's package; None if there is none.

    The README is beside the manifest, at most two directories up.
    """
    cls = class_made_by(spec.factory) or spec.environment_class or spec.factory
    try:
        folder = Path(inspect.getfile(cls)).parent
    except (TypeError, OSError):
        return None
    for place in (folder, *folder.parents[:2]):
        readme = place / "README.md"
        if (place / MANIFEST).is_file() and readme.is_file():
            text = readme.read_text(encoding="utf-8", errors="replace")
            if not text.startswith("---\n"):
                return text
            _, _, rest = text[4:].partition("\n---\n")  # skips the settings of a Space
            return rest.lstrip("\n") or text
    return None
