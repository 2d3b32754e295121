"""An MCP client's binding to a session, with the client's permissions.

Sessions are ours; a session of MCP is none. An agent acts on

- the session that its key is for, or that its address names (``?session_id=``, or the header
  ``OpenEnv-Session-Id``). Somebody else drives it: resets it, scores it, closes it.
- otherwise one that is opened for it, when it first needs one. Up to revision 2025-11-25 that is
  one for each session of MCP. Later revisions have no sessions; all who name none share one (of
  each key, where the server has keys), as they would share any MCP server.

In a session that was opened for agents nobody else begins episodes. So the first one begins at
once (in simulation: in production the world is what it is), and after the end of one the next call
is not carried out: it begins another one, and says so.
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

MAX_SUBSCRIBED = 1000  # resources, of one agent
REWARD, DONE, TRUNCATED = "openenv/reward", "openenv/done", "openenv/truncated"


class SessionEnded(Refused):
    """The session that was opened for the agent has ended; the next call opens another."""


class Reporter:
    """Tells an agent how far a call is, from wherever the tool runs on this server's own loop.

    It is passed to the environment. One that lives in another process gets a copy that tells
    nobody.
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
        principal: Who the agent is, where the server has keys.
        named: The session that it acts on; None has one opened for it.

    Attributes:
        listed: What tells one list from another, of those that it was given last: of tools,
            resources, prompts.
        subscribed: The resources of which it wants to know when they may have changed.
        hears: It listens for what the server has to say by itself.
        used_at: When it was last used, by `time.monotonic`.
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
        """Return the bound session if the session is open."""
        session = self._session
        if self._named is not None:
            with contextlib.suppress(OpenEnvError):
                session = self._manager.get(self._named, principal=self._principal)
        return session if session is not None and session.phase is SessionPhase.OPEN else None

    @property
    def may_see_rewards(self) -> bool:
        """Say whether the client may see rewards: an agent's key may not."""
        return self._principal is None or self._principal.role is not Role.AGENT

    # ------------------------------------------------------------------ the session

    async def session(self) -> Session:
        """Return the bound session, and open a session if necessary.

        Raises:
            SessionNotFoundError: The one that is named is not there.
            SessionEnded: The one that was opened for it is no longer there.
            OpenEnvError: None can be opened.
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
        """Begin an episode; return the agent's view of the first observation."""
        self._is_over = False
        if self._manager.spec.mode is ServerMode.PRODUCTION:
            return {"content": []}
        shown: dict[str, Any] = await session.handle(Reset(), encode=show_transition)
        return shown

    async def close(self) -> None:
        """Leave: a session that was opened for the agent is closed."""
        session, self._session = self._session, None
        if session is not None:
            await self._manager.close(session.id)

    # ------------------------------------------------------------------ what the agent does

    async def tools(self) -> list[dict[str, Any]]:
        """List the tools, in the wire's form."""
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
        """Call a tool. A call that fails is a result too.

        Args:
            timeout_s: Seconds that it may take; None is as long as the environment lets it.
            reporter: Told how far it is.
            trace: The span that it is part of, as W3C's `traceparent`.

        Raises:
            LookupError: There is no tool of that name.
            OpenEnvError: There is no session to call it in.
        """
        session = await self.session()
        if self._is_over and self._named is None:
            async with self._opening:
                if self._is_over:  # and no other call has been here first
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
        """Ask the environment's MCP server; return None for an environment without a server.

        Raises:
            ServerRefused: That server answered with an error.
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
        """Have the agent told when a resource may have changed.

        Raises:
            Refused: It is told of too many already.
        """
        if len(self.subscribed) >= MAX_SUBSCRIBED:
            raise Refused(f"an agent may subscribe to {MAX_SUBSCRIBED} resources at most")
        self.subscribed.add(uri)

    async def look(self) -> dict[str, Any] | None:
        """Return the last transition as a result; None before the first."""
        session = await self.session()
        shown: dict[str, Any] | None = await session.handle(GetTransition(), encode=_show_if_any)
        return shown

    async def described(self) -> dict[str, Any]:
        """Return the environment's description: name, text and the like."""
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
    """Return a digest of a list of tools, resources or prompts, to notice changes."""
    return hashlib.blake2b(to_json(listed), digest_size=16).digest()


def readme_of(spec: EnvironmentSpec) -> str | None:
    """Return the README of an environment's package.

    The README lies beside the manifest, at most two folders up.
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
            _, _, rest = text[4:].partition("\n---\n")  # after the settings of a Space
            return rest.lstrip("\n") or text
    return None
