"""Agents that are separate programs, run in an environment and recorded by the proxy.

    factory = ProgramSessionFactory(environment, server, ["mini", "--task", "{prompt}"])
    session = factory.create("Mend the test")
    session.wait_for_completion(timeout_s=600)
    trace = session.fetch_training_trace()
    reward = session.verify([]).env_reward
    session.close()

TRL's `HarnessRolloutWorker` calls these methods; `run_program` calls them for `CLIHarnessAdapter`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from openenv.agents.bridge import HarnessMCPBridge
from openenv.agents.process_adapter import fill_placeholders
from openenv.capture.dialects.base import extract_text, list_calls, parse_arguments
from openenv.capture.export import export_session, to_trace_entries, to_training_trace
from openenv.capture.graph import TurnNode
from openenv.capture.runner import CaptureServer
from openenv.capture.sessions import CaptureSession
from openenv.errors import InvalidActionError, OpenEnvError, ServerError, refusal
from openenv.rewards.llm.client import LLMResponse, ToolCall
from openenv.rollouts.harness.bridge import SessionMCPBridge
from openenv.rollouts.harness.results import (
    HarnessRolloutResult,
    HarnessRunLimits,
    Message,
    ModelStepResult,
    RolloutEvent,
    ToolResult,
    ToolTraceEntry,
    VerifyResult,
)
from openenv.rollouts.harness.sessions import (
    ResourceSession,
    ResourceSessionFactory,
    ToolCallRejected,
    TraceEntry,
    UnknownSessionTool,
)
from openenv.rollouts.harness.training import TrainingTrace
from openenv.settings import without_keys
from openenv.tools.functions import UnknownTool as UnknownMCPTool
from openenv.tools.types import Tool

__all__ = ["AgentFailed", "ProgramSession", "ProgramSessionFactory", "run_program"]

OUTPUT_BYTES = 2**16
KILL_AFTER_S = 5.0
_MODEL_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY")


class AgentFailed(OpenEnvError, RuntimeError):
    """An agent program that could not be started or never called the model.

    Attributes:
        exit_code: The exit code; None if the program could not be started.
        output: The end of the program's output.
    """

    def __init__(self, message: str, exit_code: int | None = None, output: str = "") -> None:
        self.exit_code = exit_code
        self.output = output
        super().__init__(f"{message}\n{output}".strip())


class ProgramSession(ResourceSession):
    """An agent program at work in an environment.

    The program starts immediately, in its own process group and, unless `cwd` is given, in an empty
    directory. It finds the model through the environment variables of the common SDKs
    (``OPENAI_BASE_URL``, ``OPENAI_API_BASE``, ``OPENAI_API_KEY``, ``ANTHROPIC_BASE_URL``,
    ``ANTHROPIC_API_KEY``, ``GOOGLE_GEMINI_BASE_URL``, ``GEMINI_API_KEY``), the model's name in
    ``OPENENV_MODEL``, its task in ``OPENENV_TASK``, and the environment's tools, if there are any,
    as an MCP server at ``OPENENV_MCP_URL``.

    Args:
        inner: The environment's session, which provides the task, the tools and the verdict. This
            session owns it and closes it.
        server: The proxy; started if necessary.
        command: The program and its arguments. ``{prompt}``, ``{base_url}``, ``{api_key}``,
            ``{mcp_url}`` and ``{model}`` are replaced.
        env: Further environment variables, with the same replacements.
        cwd: Working directory of the program.
        timeout_s: Time limit of the program in seconds; None for no limit.
        sampling: Sampling parameters that override the agent's; see `training_sampling`.
        max_model_calls: Maximum number of model calls; 0 for no limit.
        metadata: Data to store with the proxy's session.

    Raises:
        AgentFailed: The program cannot be started.
    """

    def __init__(
        self,
        inner: ResourceSession,
        server: CaptureServer,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout_s: float | None = None,
        sampling: Mapping[str, Any] | None = None,
        max_model_calls: int = 0,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.inner = inner
        self.server = server
        self.tool_trace: list[ToolTraceEntry] = []
        self._timeout_s = timeout_s
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._bridge: HarnessMCPBridge | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._output = bytearray()
        server.start()
        self.captured: CaptureSession = server.registry.create(
            sampling=sampling, max_model_calls=max_model_calls, **(metadata or {})
        )
        try:
            self._start(command, env or {}, cwd)
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------ the environment's session

    def initial_messages(self) -> list[Message]:
        """Return the messages that describe the task."""
        return self.inner.initial_messages()

    def list_tools(self) -> list[Tool]:
        """List the environment's tools."""
        return self.inner.list_tools()

    def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool of the environment and record the call."""
        result = self.inner.call_tool(name, arguments)
        self.tool_trace.append(ToolTraceEntry(name, dict(arguments), result))
        return result

    def verify(self, transcript: list[Message], final_state: Any | None = None) -> VerifyResult:
        """Return the environment's verdict."""
        return self.inner.verify(transcript, final_state)

    def close(self) -> None:
        """End the program and all its children, and close the environment's session."""
        with contextlib.ExitStack() as stack:  # each of these is done, also if another one fails
            stack.callback(self.inner.close)
            if self._directory is not None:
                stack.callback(self._directory.cleanup)
            stack.callback(self.server.registry.delete, self.captured.session_id)
            if self._bridge is not None:
                stack.callback(self._bridge.stop)
            self._end()

    # ------------------------------------------------------------------ the program

    def wait_for_completion(self, timeout_s: float | None = None) -> int:
        """Wait for the end of the program and return the exit status.

        Args:
            timeout_s: Time limit in seconds. Default: the session's.

        Raises:
            TimeoutError: The program exceeded the limit and was ended; its calls so far are
                recorded.
            AgentFailed: The program ended without calling the model.
        """
        assert self._process is not None, "a session that is there has started its program"
        limit = self._timeout_s if timeout_s is None else timeout_s
        try:
            code = self._process.wait(limit)
        except subprocess.TimeoutExpired:
            self._end()
            raise TimeoutError(f"the agent was not done in {limit:g} s") from None
        self._reader.join(KILL_AFTER_S)
        if not self.captured.graph.nodes() and not self.captured.failures:
            raise AgentFailed(
                f"the agent ended with {code} and asked the model nothing: does it take its base "
                f"URL and key from the environment variables, or from its command?",
                code,
                self.output,
            )
        return code

    @property
    def output(self) -> str:
        """Return the end of the program's output, stdout and stderr together."""
        return bytes(self._output[-OUTPUT_BYTES:]).decode("utf-8", "replace")

    def fetch_proxy_trace(self) -> list[TraceEntry]:
        """Return the model calls that can be trained on.

        Raises:
            ValueError: The session is not fit for training.
        """
        entries: list[Any] = to_trace_entries(self.captured.graph, export_session(self.captured))
        return entries

    def fetch_training_trace(self) -> TrainingTrace:
        """Return the model calls that can be trained on, as a validated trace.

        Raises:
            ValueError: The session is not fit for training, or no call can be trained on.
        """
        return to_training_trace(self.captured.graph, export_session(self.captured))

    def _start(
        self, command: Sequence[str], env: Mapping[str, str], cwd: str | os.PathLike[str] | None
    ) -> None:
        if self.inner.list_tools():
            self._bridge = HarnessMCPBridge(_EnvironmentTools(self))
            self._bridge.start()
        if cwd is None:
            self._directory = tempfile.TemporaryDirectory(prefix="openenv-agent-")
            cwd = self._directory.name
        values = self._values()
        filled = fill_placeholders(command, values)
        # Leave out keys by which the agent could reach a model without the proxy.
        inherited = without_keys(os.environ)
        variables = {
            **{name: value for name, value in inherited.items() if name not in _MODEL_KEYS},
            **self._variables(values),
            **dict(zip(env, fill_placeholders(list(env.values()), values), strict=True)),
        }
        try:
            self._process = subprocess.Popen(  # nosec B603  # the operator's program, no shell
                filled,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=variables,
                start_new_session=True,
            )
        except OSError as error:
            raise AgentFailed(f"{filled[0]} cannot be started: {error}") from error
        self._reader = threading.Thread(target=self._read, name="openenv-agent", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        with self._process.stdout as stream:
            while part := stream.read1(OUTPUT_BYTES):  # type: ignore[attr-defined]
                self._output += part
                del self._output[:-OUTPUT_BYTES]

    def _values(self) -> dict[str, str]:
        messages = self.inner.initial_messages()
        return {
            "prompt": "\n\n".join(extract_text(one.get("content")) for one in messages),
            "base_url": f"{self.server.url}/v1",
            "api_key": self.captured.session_id,
            "mcp_url": self._bridge.url if self._bridge is not None else "",
            "model": self.server.inference.served_model or "model",
        }

    def _variables(self, values: Mapping[str, str]) -> dict[str, str]:
        bases = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
        roots = ("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL")
        keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")
        return {
            **dict.fromkeys(bases, values["base_url"]),
            **dict.fromkeys(roots, self.server.url),
            **dict.fromkeys(keys, values["api_key"]),
            "OPENENV_TASK": values["prompt"],
            "OPENENV_MODEL": values["model"],
            **({"OPENENV_MCP_URL": values["mcp_url"]} if values["mcp_url"] else {}),
        }

    def _end(self) -> None:
        """End the program and its process group."""
        process = self._process
        if process is None:
            return
        for by in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, by)
            except (ProcessLookupError, PermissionError):
                break
            try:
                process.wait(KILL_AFTER_S)
            except subprocess.TimeoutExpired:
                continue
        process.wait(KILL_AFTER_S)
        self._reader.join(KILL_AFTER_S)


class ProgramSessionFactory(ResourceSessionFactory[ProgramSession]):
    """A factory of sessions in which an agent program acts.

    Args:
        environment: Factory of the environment's sessions.
        server: The proxy; started with the first session.
        command: The program and its arguments; see `ProgramSession`.
        options: Further options of `ProgramSession`.
    """

    def __init__(
        self,
        environment: ResourceSessionFactory[Any],
        server: CaptureServer,
        command: Sequence[str],
        **options: Any,
    ) -> None:
        self.environment = environment
        self.server = server
        self.command = command
        self.options = options

    def create(
        self, task: Any, seed: int | None = None, episode_id: str | None = None
    ) -> ProgramSession:
        """Begin a session for a task."""
        inner = self.environment.create(task, seed, episode_id)
        return ProgramSession(inner, self.server, self.command, **self.options)


def run_program(
    bridge: SessionMCPBridge, session: ResourceSession, limits: HarnessRunLimits
) -> HarnessRolloutResult:
    """Run a `ProgramSession` to the end, as the runner of a `CLIHarnessAdapter`.

    The result holds the calls of the agent's last conversation. Calls of sub-agents and abandoned
    branches are only in the session's training trace. `limits` are not applied: pass
    `max_model_calls` to the session instead.

    Raises:
        TypeError: The session is not a `ProgramSession`.
        TimeoutError: The agent exceeded its time limit.
        AgentFailed: The agent never called the model.
    """
    del bridge, limits
    if not isinstance(session, ProgramSession):
        raise TypeError(f"run_program plays a ProgramSession, not a {type(session).__name__}")
    code = session.wait_for_completion()
    graph = session.captured.graph
    path = graph.path_to(_last_leaf(session.captured).node_id) if graph.nodes() else []
    result = HarnessRolloutResult(
        done=True,
        tool_trace=list(session.tool_trace),
        events=[RolloutEvent("agent_exit", {"exit_code": code, "output": session.output})],
        metrics={
            "turns": len(graph.nodes()),
            "tool_calls": len(session.tool_trace),
            "exit_code": code,
            "failed_calls": len(session.captured.failures),
        },
    )
    if path:
        result.messages = [*path[-1].request_messages, path[-1].response_message]
    result.join([_step(node) for node in path])
    return result


def _last_leaf(session: CaptureSession) -> TurnNode:
    document = export_session(session)
    agents = {one["node_id"] for one in document["turns"] if one["role"] == "agent"}
    leaves = [node for node in session.graph.leaves() if node.node_id in agents]
    return (leaves or session.graph.leaves())[-1]


def _step(node: TurnNode) -> ModelStepResult:
    message = node.response_message
    calls = [ToolCall(i, name, parse_arguments(given)) for i, name, given in list_calls(message)]
    reply = LLMResponse(extract_text(message.get("content")), calls)
    logprobs = list(node.sampled_logprobs or ()) if node.has_tokens else []
    return ModelStepResult(reply, node.prompt_ids, node.sampled_ids, logprobs)


class _EnvironmentTools:
    """The environment's tools for the MCP bridge, in MCP's format."""

    def __init__(self, session: ProgramSession) -> None:
        self.session = session
        self.lock = threading.Lock()

    async def tools(self) -> list[dict[str, Any]]:
        return [
            {
                "name": tool.name,
                "description": tool.description or "",
                "inputSchema": tool.input_schema or {"type": "object"},
            }
            for tool in self.session.list_tools()
        ]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return await asyncio.to_thread(self._call_now, name, dict(arguments))

    def _call_now(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        with self.lock:  # only one step at a time in an environment
            try:
                result = self.session.call_tool(name, arguments)
            except UnknownSessionTool as error:
                raise UnknownMCPTool(str(error)) from error
            except (ToolCallRejected, InvalidActionError) as error:
                result = ToolResult(error=str(error))
            except ServerError as error:
                if (refused := refusal(error)) is None:
                    raise
                result = ToolResult(error=refused)
        content = [{"type": "text", "text": result.text}]
        return {"content": content, "isError": result.error is not None}
