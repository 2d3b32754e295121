"""All errors of OpenEnv, in a single tree.

    OpenEnvError
     +-- raised inside a server
     |    +-- ConcurrencyConfigurationError   (ValueError) more sessions than the class allows
     |    +-- SessionCapacityError            no slot is free
     |    |    +-- KeySessionsError           a key has its maximum number of sessions
     |    +-- SessionNotFoundError            the session does not exist, or has ended
     |    +-- SessionCreationError            a session could not be opened
     |    +-- EnvironmentFactoryError         the environment's constructor raised
     |    +-- SessionClosedError              the session ended while a request waited
     |    +-- EnvironmentCrashed              the session's worker process died; .exit_code
     |    +-- SessionBusyError                an overdue call has not returned yet
     |    +-- InvalidJSONError                (ValueError) a frame is not JSON
     |    +-- UnknownMessageTypeError         (ValueError) a frame has an unknown type
     |    +-- InvalidMessageError             (ValueError) a frame is malformed; .errors
     |    |    +-- InvalidActionError         the action does not fit its model; .errors
     |    +-- InvalidArgumentError            (TypeError) the environment takes no such argument
     |    |    +-- MissingArgumentError       a required argument is missing
     |    +-- InvalidReturnError              (TypeError) user code returned no observation
     |    +-- EncodingError                   (ValueError) a value cannot be sent
     |    |    +-- TooLargeError              a message is over the limit; .size, .limit
     |    |         +-- RequestTooLargeError  a request is over the limit; over HTTP, 413
     |    +-- Refused                         (ValueError) the environment refuses a request
     +-- raised on either side
     |    +-- NotSupported                    (NotImplementedError) a feature is missing; .feature
     |    +-- RecordingError                  (ValueError) a file is not a recording
     |    +-- Unscored                        (ValueError) a reward could not be computed
     |    +-- NotAuthenticatedError           the key is missing or unknown
     |    +-- NotPermittedError               the key's role, or a page's origin, is not permitted
     |    +-- WrongHostError                  a request names another host than the server
     |    |    +-- MalformedHostError         a request's host name is invalid; over HTTP, 400
     |    +-- RateLimitError                  a key exceeded a rate limit; .retry_after_s
     |    +-- KeyFileError                    (ValueError) a file of keys cannot be used
     |    +-- SandboxError                    (RuntimeError) a sandbox failed
     |         +-- SandboxUnavailable         no sandbox gives the guarantee; .reasons
     |         +-- SandboxEnded               the sandbox and its contents are gone; .why
     |         +-- SandboxFileError           (OSError) a file operation failed; .errno
     +-- raised by a client
     |    +-- ConnectError                    (ConnectionError) no server answers
     |    |    +-- AuthenticationError        the server requires a key, or another one
     |    |    +-- PermissionRefused          the server denies access to this key or page
     |    |    +-- ServerGone                 the server that had the session no longer exists
     |    +-- SessionLost                     (ConnectionError) the episode is lost
     |    +-- ResponseTimeout                 (TimeoutError) no answer in time
     |    |    +-- StepTimeout                a step exceeded its limit; .timeout_s, .is_running
     |    +-- EnvironmentsFailed              (RuntimeError) in a VectorEnv; .errors, .results
     |    +-- ProtocolError                   the peer broke the protocol
     |    +-- InvalidSnapshot                 (ValueError) the bytes are not a snapshot
     |    +-- ReplayDiverged                  (RuntimeError) a replay had another outcome; .step
     |    +-- ServerError                     (RuntimeError) the server's answer; .type, .incident
     |         +-- MalformedRequest           INVALID_JSON, UNKNOWN_TYPE
     |         +-- ValidationFailed           VALIDATION_ERROR; .errors
     |         +-- ExecutionFailed            EXECUTION_ERROR
     |         |    +-- ToolFailed            a tool's own error; .tool_name, .error_type
     |         +-- CapacityError              CAPACITY_REACHED
     |         +-- RateLimited                RATE_LIMITED; .retry_after_s
     |         +-- FactoryFailed              FACTORY_ERROR
     |         +-- SessionFailed              SESSION_ERROR
     |         +-- SessionBusy                SESSION_BUSY
     |         +-- MessageTooLarge            (ValueError) TOO_LARGE
     |         +-- NotSupportedByServer       (NotSupported) NOT_SUPPORTED
     +-- raised by a provider
          +-- ProviderError                   (RuntimeError) an environment did not start; .logs
               +-- ProviderExited             its process ended; .exit_code
               +-- ProviderTimeout            (TimeoutError) it was not ready in time

Packages that few programs need define further errors, such as `openenv.rewards.llm.LLMError` and
`openenv.tasks.TasksetError`.

The table `OUTWARD` says how an error leaves a server: its wire code, HTTP status and JSON-RPC code.
`server_error` is the inverse on the client. An error's data are attributes; its text is
`str(error)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from openenv._internal.timing import TimeoutBase

__all__ = [
    "AuthenticationError",
    "CapacityError",
    "ConcurrencyConfigurationError",
    "ConnectError",
    "EncodingError",
    "EnvironmentCrashed",
    "EnvironmentFactoryError",
    "EnvironmentsFailed",
    "ErrorCode",
    "ExecutionFailed",
    "FactoryFailed",
    "IgnoredArgumentWarning",
    "InvalidActionError",
    "InvalidArgumentError",
    "InvalidJSONError",
    "InvalidMessageError",
    "InvalidReturnError",
    "KeyFileError",
    "KeySessionsError",
    "MalformedHostError",
    "MalformedRequest",
    "NotAuthenticatedError",
    "NotPermittedError",
    "InvalidSnapshot",
    "MessageTooLarge",
    "MissingArgumentError",
    "NotSupported",
    "NotSupportedByServer",
    "OpenEnvError",
    "PermissionRefused",
    "ProtocolError",
    "ProviderError",
    "ProviderExited",
    "ProviderTimeout",
    "Refused",
    "RecordingError",
    "ReplayDiverged",
    "RateLimitError",
    "RateLimited",
    "RequestTooLargeError",
    "ResponseTimeout",
    "SandboxEnded",
    "SandboxError",
    "SandboxFileError",
    "SandboxUnavailable",
    "ServerError",
    "ServerGone",
    "SessionBusy",
    "SessionBusyError",
    "SessionCapacityError",
    "SessionClosedError",
    "SessionCreationError",
    "SessionFailed",
    "SessionLost",
    "SessionNotFoundError",
    "StepTimeout",
    "TooLargeError",
    "ToolFailed",
    "UnknownMessageTypeError",
    "Unscored",
    "ValidationFailed",
    "WrongHostError",
    "how_it_ended",
    "outward",
    "refusal",
    "server_error",
    "speaks",
    "words",
]

ErrorList = list[dict[str, Any]]


class ErrorCode(str, Enum):
    """The codes of errors on the wire: first those of protocol version 0, then later ones."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    FACTORY_ERROR = "FACTORY_ERROR"
    SESSION_ERROR = "SESSION_ERROR"
    STEP_TIMEOUT = "STEP_TIMEOUT"
    SESSION_BUSY = "SESSION_BUSY"
    TOO_LARGE = "TOO_LARGE"
    NOT_SUPPORTED = "NOT_SUPPORTED"  # version 1
    RATE_LIMITED = "RATE_LIMITED"
    NOT_AUTHENTICATED = "NOT_AUTHENTICATED"
    NOT_PERMITTED = "NOT_PERMITTED"
    WRONG_HOST = "WRONG_HOST"


class IgnoredArgumentWarning(UserWarning):
    """An argument of `reset` or `step` was not taken by the environment.

    Example:
        >>> import warnings
        >>> from blackjack_env.server.blackjack_environment import BlackjackEnvironment
        >>> from openenv import GenericEnvClient, IgnoredArgumentWarning
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always", IgnoredArgumentWarning)
        ...     with GenericEnvClient.local(BlackjackEnvironment).sync() as env:
        ...         result = env.reset(level=3)
        >>> caught[0].category.__name__
        'IgnoredArgumentWarning'
    """


class OpenEnvError(Exception):
    """The base class of all errors that OpenEnv raises on purpose.

    Every error can be pickled, whatever its constructor takes: its text and attributes are kept.

    Example:
        >>> from openenv import GenericEnvClient, OpenEnvError
        >>> env = GenericEnvClient("http://localhost:1").sync()
        >>> try:
        ...     env.reset()
        ... except OpenEnvError as error:
        ...     print(type(error).__name__)
        ConnectError
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self.args), self.__dict__

    _details: tuple[str, ...] = ()  # attributes that are sent to the peer

    def details(self) -> dict[str, Any]:
        """Return the data that is sent to the peer besides code and message."""
        return {name: getattr(self, name) for name in self._details}


def _made_again(cls: type[BaseException], arguments: tuple[Any, ...]) -> BaseException:
    """Make an error without calling the constructor, which may take other arguments."""
    new = OSError.__new__ if issubclass(cls, OSError) else cls.__new__
    error = new(cls, *arguments)
    error.args = arguments  # an OSError sets them in its constructor only
    return error


def how_it_ended(exit_code: int | None) -> str:
    """Describe how a process ended. The exit code is negative for a signal, None if unknown."""
    import signal

    if exit_code is None:
        return "it ended in an unknown way"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"


# ------------------------------------------------------------------ raised inside a server


class ConcurrencyConfigurationError(OpenEnvError, ValueError):
    """The class does not allow more than one session, and several were requested."""

    def __init__(
        self, environment_name: str, max_concurrent_envs: int, message: str | None = None
    ) -> None:
        self.environment_name = environment_name
        self.max_concurrent_envs = max_concurrent_envs
        super().__init__(
            message
            or f"{environment_name} does not declare SUPPORTS_CONCURRENT_SESSIONS = True, so it "
            f"is served to one session, not to max_concurrent_envs={max_concurrent_envs}. If "
            "instances share no state (no globals, no fixed ports, no shared files), declare it "
            "on the class; otherwise leave max_concurrent_envs out and start more servers."
        )


class SessionCapacityError(OpenEnvError):
    """Every slot is taken."""

    _details = ("active_sessions", "max_sessions")

    def __init__(self, active_sessions: int, max_sessions: int, message: str | None = None) -> None:
        self.active_sessions = active_sessions
        self.max_sessions = max_sessions
        super().__init__(
            message
            or f"Server at capacity: {active_sessions}/{max_sessions} sessions active. Close a "
            "session, or serve more: create_app(..., max_concurrent_envs=N) with an environment "
            "that declares SUPPORTS_CONCURRENT_SESSIONS = True, or start another server."
        )


class KeySessionsError(SessionCapacityError):
    """A key has the maximum number of sessions open."""

    def __init__(self, key_name: str, active_sessions: int, max_sessions: int) -> None:
        self.key_name = key_name
        super().__init__(
            active_sessions,
            max_sessions,
            f"The key {key_name!r} has {active_sessions} sessions open, and may have "
            f"{max_sessions}. Close one, or have the key's max_sessions raised.",
        )


class SessionNotFoundError(OpenEnvError):
    """The session does not exist, or has ended."""

    def __init__(self, session_id: str, message: str | None = None) -> None:
        self.session_id = session_id
        super().__init__(message or f"Unknown session_id: {session_id}")


class SessionCreationError(OpenEnvError):
    """A session could not be opened."""

    def __init__(self, reason: str, message: str | None = None) -> None:
        self.reason = reason
        super().__init__(message or f"Failed to create session: {reason}")


class EnvironmentFactoryError(OpenEnvError):
    """The environment's constructor (or the factory function) raised; see `__cause__`."""

    _details = ("factory_name",)

    def __init__(self, factory_name: str, message: str | None = None) -> None:
        self.factory_name = factory_name
        super().__init__(
            message or f"Environment factory '{factory_name}' failed to create instance."
        )


class SessionClosedError(OpenEnvError):
    """The session ended before this request could be served."""

    def __init__(self, session_id: str, message: str | None = None) -> None:
        self.session_id = session_id
        super().__init__(message or f"Session {session_id} is closed")


class EnvironmentCrashed(OpenEnvError):
    """The worker process that held a session's environment has died, and the episode with it.

    Attributes:
        exit_code: Exit code of the process; negative for a signal, None if unknown.
    """

    _details = ("exit_code",)

    def __init__(self, exit_code: int | None, message: str | None = None) -> None:
        self.exit_code = exit_code
        super().__init__(
            message
            or "The process that held this environment has died "
            f"({how_it_ended(exit_code)}), and the episode with it. Open a new session: other "
            "sessions go on, and the process is replaced. What it last wrote is in the server's "
            "log."
        )


class SessionBusyError(OpenEnvError):
    """An overdue call has not returned yet, so no other call can begin. It is a call of this
    session, or of another session on the same thread.

    Attributes:
        running_s: Seconds for which the call has been running, or has held the shared thread.
    """

    _details = ("running_s",)

    def __init__(self, running_s: float, message: str | None = None) -> None:
        self.running_s = running_s
        super().__init__(
            message
            or f"the step whose time was over is still running, for {running_s:.3g} s by now. Ask "
            "again for its answer, with the same action; or reset, or wait until it is back"
        )


class InvalidJSONError(OpenEnvError, ValueError):
    """A frame could not be decoded."""


class UnknownMessageTypeError(OpenEnvError, ValueError):
    """The protocol does not know a frame's `type`."""


class InvalidMessageError(OpenEnvError, ValueError):
    """A frame or request body is malformed; `errors` is Pydantic's list of errors."""

    _details = ("errors",)

    def __init__(self, errors: ErrorList, message: str = "Invalid message") -> None:
        self.errors = errors
        super().__init__(message)


class InvalidActionError(InvalidMessageError):
    """The environment's action model refused the action; `errors` lists the reasons by field."""


class InvalidArgumentError(OpenEnvError, TypeError):
    """The environment's `reset` or `step` does not take an argument."""

    def __init__(self, method: str, names: Sequence[str], accepted: Sequence[str]) -> None:
        self.method = method
        self.names = list(names)
        self.accepted = list(accepted)
        super().__init__(self._words())

    def _words(self) -> str:
        return _unknown_arguments(self.method, self.names, self.accepted)

    def details(self) -> dict[str, Any]:
        from openenv._internal.quoting import shortened

        return {
            "arguments": [shortened(name, MAX_NAME) for name in self.names[:MAX_NAMES]],
            "accepted": self.accepted,
        }


class MissingArgumentError(InvalidArgumentError):
    """An argument of `reset` or `step` that has no default was not given."""

    def _words(self) -> str:
        given = ", ".join(f"{name}=..." for name in self.names)
        call = f"{self.method}({'action, ' if self.method == 'step' else ''}{given})"
        taken = ", ".join(self.accepted)
        named = ", ".join(map(repr, self.names))
        return f"{self.method} needs {named}: pass {call}; it takes {taken}"


MAX_NAMES, MAX_NAME = 20, 100  # number of names that an error quotes, and characters of each


def _unknown_arguments(method: str, names: Sequence[str], accepted: Sequence[str]) -> str:
    from openenv._internal.quoting import closest, shortened  # imported late: few errors need them

    hints = []
    for name in names[:MAX_NAMES]:
        close = closest(name[:MAX_NAME], accepted)
        name = repr(shortened(name, MAX_NAME))
        hints.append(name + (f" (did you mean {close!r}?)" if close else ""))
    if len(names) > MAX_NAMES:
        hints.append(f"and {len(names) - MAX_NAMES} more")
    taken = ", ".join(accepted) if accepted else "no arguments"
    return f"{method} does not take {', '.join(hints)}; it takes {taken}"


class InvalidReturnError(OpenEnvError, TypeError):
    """User code returned something that is neither an Observation nor a StepResult."""


class EncodingError(OpenEnvError, ValueError):
    """A value cannot be encoded for the wire."""


class Refused(OpenEnvError, ValueError):
    """The environment refuses a request; the text tells the client why.

    An environment raises this error to tell the agent or the trainer something, such as an illegal
    move or an unknown task. The text is always sent. For any other exception the peer gets the
    class and an incident id only, since the text may contain confidential data.

    Example:
        >>> from openenv import Action, Environment, Observation, State
        >>> from openenv import GenericEnvClient, Refused, ServerError
        >>> class Move(Action):
        ...     column: int
        >>> class Game(Environment[Move, Observation, State]):
        ...     state = State()
        ...
        ...     def reset(self) -> Observation:
        ...         return Observation()
        ...
        ...     def step(self, action: Move) -> Observation:
        ...         raise Refused(f"column {action.column} is full")
        >>> with GenericEnvClient.local(Game).sync() as env:
        ...     result = env.reset()
        ...     try:
        ...         env.step({"column": 3})
        ...     except ServerError as error:
        ...         print(error)
        Server error: column 3 is full (code: EXECUTION_ERROR)
    """


class TooLargeError(EncodingError):
    """A message is larger than the peer accepts.

    Attributes:
        size: Size of the message in bytes.
        limit: Largest accepted size in bytes.

    Example:
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import GenericEnvClient, Limits, TooLargeError, create_app
        >>> app = create_app(EchoEnvironment, limits=Limits(max_message_bytes=10_000))
        >>> with GenericEnvClient.local(app).sync() as env:
        ...     result = env.reset()
        ...     try:
        ...         env.step({"message": "x" * 20_000})
        ...     except TooLargeError as error:
        ...         print(error.limit)
        10000
    """

    _details = ("size", "limit")

    def __init__(self, what: str, size: int, limit: int, cure: str) -> None:
        self.size = size
        self.limit = limit
        super().__init__(f"the {what} takes {size} bytes, and the limit is {limit}; {cure}")


class RequestTooLargeError(TooLargeError):
    """A request is larger than the server accepts; status 413 over HTTP."""


# ------------------------------------------------------------------ raised on either side


class NotSupported(OpenEnvError, NotImplementedError):
    """The environment, the server or the session lacks an optional feature.

    Attributes:
        feature: The missing feature, such as ``snapshot``.

    Example:
        >>> from openenv import Action, Environment, Observation, State
        >>> from openenv import GenericEnvClient, NotSupported
        >>> class Plain(Environment[Action, Observation, State]):
        ...     state = State()
        ...
        ...     def reset(self) -> Observation:
        ...         return Observation()
        ...
        ...     def step(self, action: Action) -> Observation:
        ...         return Observation()
        >>> with GenericEnvClient.local(Plain).sync() as env:
        ...     result = env.reset()
        ...     try:
        ...         env.snapshot()
        ...     except NotSupported as error:
        ...         print(error.feature)
        snapshot
    """

    _details = ("feature",)

    def __init__(self, message: str, *, feature: str = "") -> None:
        self.feature = feature
        super().__init__(message)


class RecordingError(OpenEnvError, ValueError):
    """A file is not a recording, or is damaged before the last line.

    Attributes:
        path: The file.
        line: Number of the damaged line, from 1; None if the error concerns the whole file.
    """

    def __init__(self, path: str, line: int | None, why: str) -> None:
        self.path = path
        self.line = line
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {why}")


class Unscored(OpenEnvError, ValueError):
    """An action or an episode could not be scored; the text says why.

    A rubric raises this error if it has no score, for example because its judge does not answer or
    its grader crashed. The reward is then None, with this text as the reason, and never 0.

    Example:
        >>> from openenv import Rubric, Unscored
        >>> class Judge(Rubric):
        ...     def forward(self, action: str, observation: str) -> float:
        ...         raise Unscored("the judge did not answer")
        >>> rubric = Judge()
        >>> try:
        ...     rubric("an answer", "")
        ... except Unscored as error:
        ...     print(error, rubric.last_score)
        the judge did not answer None
    """


class NotAuthenticatedError(OpenEnvError):
    """A request carries no key, or a key that the server does not know."""


class NotPermittedError(OpenEnvError):
    """The request's key, or the web page that sent the request, has no permission."""


class WrongHostError(OpenEnvError):
    """A request names a host that is not the server's, as in a DNS rebinding attack."""


class MalformedHostError(WrongHostError):
    """A request's `Host` is not a name with an optional port (RFC 9112, section 3.2)."""


class RateLimitError(OpenEnvError):
    """A key has exceeded a rate limit.

    Attributes:
        retry_after_s: Seconds after which the key may send requests again.
    """

    def __init__(self, key_name: str, limit: str, retry_after_s: float) -> None:
        self.key_name = key_name
        self.limit = limit
        self.retry_after_s = retry_after_s
        super().__init__(
            f"The key {key_name!r} may ask for no more than {limit}; try again in "
            f"{retry_after_s:.2g} s. The session goes on, and nothing was carried out."
        )

    def details(self) -> dict[str, Any]:
        return {"retry_after_s": round(self.retry_after_s, 3)}


class KeyFileError(OpenEnvError, ValueError):
    """A file of keys cannot be read, is malformed, or is accessible to other users; or
    OPENENV_API_KEY is not a valid key. The text says which.
    """


class SandboxError(OpenEnvError, RuntimeError):
    """The base class of sandbox errors; see `openenv.sandbox`."""


class SandboxUnavailable(SandboxError):
    """No sandbox of this machine gives the required guarantee; a weaker sandbox is never used.

    Attributes:
        guarantee: The required guarantee.
        reasons: For each kind of sandbox, by name: why it does not give the guarantee, and what
            would help.
    """

    def __init__(self, guarantee: str, reasons: Mapping[str, str]) -> None:
        self.guarantee = guarantee
        self.reasons = dict(reasons)
        told = "; ".join(f"{kind}: {reason}" for kind, reason in self.reasons.items())
        super().__init__(f"no sandbox here guarantees {guarantee!r} ({told})")


class SandboxEnded(SandboxError):
    """The sandbox has ended, with all processes and files.

    Attributes:
        why: The reason, for example too much memory.
    """

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the sandbox has ended: {why}")


class SandboxFileError(SandboxError, OSError):
    """A file in a sandbox cannot be read or written; `errno`, `strerror` and `filename` say why."""

    def __init__(self, errno: int, strerror: str, filename: str) -> None:
        OSError.__init__(self, errno, strerror, filename)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errno, self.strerror, self.filename)


# ------------------------------------------------------------------ raised by a client


class ConnectError(OpenEnvError, ConnectionError):
    """No connection to the server could be made.

    Example:
        >>> from openenv import ConnectError, GenericEnvClient
        >>> env = GenericEnvClient("http://localhost:1").sync()
        >>> try:
        ...     env.reset()
        ... except ConnectError:
        ...     print("start the server first")
        start the server first
    """


class AuthenticationError(ConnectError):
    """The server requires a key, and the client sent none or an unknown key.

    Example:
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import AuthenticationError, GenericEnvClient, create_app
        >>> app = create_app(EchoEnvironment, keys=["the-key-of-the-server"])
        >>> env = GenericEnvClient.local(app).sync()
        >>> try:
        ...     env.reset()
        ... except AuthenticationError:
        ...     print("pass api_key=KEY, or set OPENENV_API_KEY")
        pass api_key=KEY, or set OPENENV_API_KEY
    """


class ServerGone(ConnectError):
    """The server behind a gateway that had the session no longer exists."""


class PermissionRefused(ConnectError):
    """The server knows the client, and denies access.

    Example:
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import GenericEnvClient, PermissionRefused, create_app
        >>> from openenv.server import Key, Role
        >>> app = create_app(EchoEnvironment, keys=[Key("a-key-that-only-looks", Role.OBSERVER)])
        >>> env = GenericEnvClient.local(app, api_key="a-key-that-only-looks").sync()
        >>> try:
        ...     env.reset()
        ... except PermissionRefused:
        ...     print("this key may not play")
        this key may not play
    """


class SessionLost(OpenEnvError, ConnectionError):
    """The session and its running episode are lost or in an unknown state.

    Call `reset()` to begin a new episode.

    Example:
        >>> from echo_env import EchoAction, EchoEnv
        >>> from openenv import ProcessProvider, SessionLost
        >>> def play(env, messages):
        ...     while True:
        ...         env.reset()
        ...         try:
        ...             return [env.step(EchoAction(message=text)).reward for text in messages]
        ...         except SessionLost:  # the server went away: the episode begins again
        ...             continue
        >>> with EchoEnv.with_provider(ProcessProvider("echo_env")).sync() as env:
        ...     play(env, ["a", "bc"])
        [0.1, 0.2]
    """


class ResponseTimeout(OpenEnvError, TimeoutBase):
    """The server did not answer within `message_timeout_s`.

    Example:
        >>> import time
        >>> from openenv import Action, Environment, Observation, State
        >>> from openenv import GenericEnvClient, ResponseTimeout
        >>> class Slow(Environment[Action, Observation, State]):
        ...     state = State()
        ...
        ...     def reset(self) -> Observation:
        ...         time.sleep(0.5)
        ...         return Observation()
        ...
        ...     def step(self, action: Action) -> Observation:
        ...         return Observation()
        >>> with GenericEnvClient.local(Slow, message_timeout_s=0.1).sync() as env:
        ...     try:
        ...         env.reset()
        ...     except ResponseTimeout:
        ...         print("pass a larger message_timeout_s")
        pass a larger message_timeout_s
    """


class StepTimeout(ResponseTimeout):
    """A step took longer than the given `timeout_s`.

    Attributes:
        timeout_s: The time limit in seconds.
        is_running: Whether the step is still running: a thread cannot be interrupted, and a
            coroutine may need time to end. The session accepts no other call until it returns.
            Repeating the call with the same action waits for its answer.

    Example:
        >>> import time
        >>> from openenv import Action, Environment, Observation, State
        >>> from openenv import GenericEnvClient, StepTimeout
        >>> class Slow(Environment[Action, Observation, State]):
        ...     state = State()
        ...
        ...     def reset(self) -> Observation:
        ...         return Observation()
        ...
        ...     def step(self, action: Action) -> Observation:
        ...         time.sleep(0.5)
        ...         return Observation(done=True)
        >>> with GenericEnvClient.local(Slow).sync() as env:
        ...     result = env.reset()
        ...     try:
        ...         env.step({}, timeout_s=0.1)
        ...     except StepTimeout as error:
        ...         print(error.timeout_s, error.is_running)
        ...     env.step({}).done  # the same action waits for the answer
        0.1 True
        True
    """

    _details = ("timeout_s", "is_running")

    def __init__(self, timeout_s: float, *, is_running: bool, message: str | None = None) -> None:
        self.timeout_s = timeout_s
        self.is_running = is_running
        after = (
            "It is still running; ask again for its answer, with the same action, or reset."
            if is_running
            else "It has ended without an answer; the episode is where that left it."
        )
        super().__init__(message or f"the step took longer than its {timeout_s:g} s. {after}")


class EnvironmentsFailed(OpenEnvError, RuntimeError):
    """Some environments of a `VectorEnv` failed; the others are fine.

    Attributes:
        errors: The exception of each failed environment, by its number.
        results: The `StepResult` of each other environment, by its number.

    Example:
        >>> from openenv import EnvironmentsFailed, ProcessProvider, VectorEnv
        >>> with VectorEnv(provider=ProcessProvider("blackjack_env"), num_envs=2) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     try:
        ...         envs.step([{"action": "stand"}, {"action": "fold"}])
        ...     except EnvironmentsFailed as failed:
        ...         print(list(failed.errors), list(failed.results))
        [1] [0]
    """

    def __init__(self, errors: Mapping[int, Exception], results: Mapping[int, Any]) -> None:
        self.errors = dict(errors)
        self.results = dict(results)
        shown = [f"{i}: {error}" for i, error in list(self.errors.items())[:3]]
        more = len(self.errors) - len(shown)
        shown += [f"and {more} more"] if more else []
        super().__init__(
            f"{len(self.errors)} of {len(self.errors) + len(self.results)} environments failed; "
            + "; ".join(shown)
        )


class ProtocolError(OpenEnvError):
    """The peer sent something that the protocol does not allow."""


class InvalidSnapshot(OpenEnvError, ValueError):
    """The bytes are not a snapshot made by `snapshot`, or are damaged.

    Example:
        >>> from blackjack_env.server.blackjack_environment import BlackjackEnvironment
        >>> from openenv import GenericEnvClient, InvalidSnapshot
        >>> with GenericEnvClient.local(BlackjackEnvironment).sync() as env:
        ...     result = env.reset()
        ...     try:
        ...         env.restore(b"not a snapshot")
        ...     except InvalidSnapshot:
        ...         print("begin a new episode")
        begin a new episode
    """


class ReplayDiverged(OpenEnvError, RuntimeError):
    """The same seed and actions had another outcome; the session is left without an episode.

    Attributes:
        step: Number of the step that differed, from 1; 0 for the reset.
        what: The part that differed: ``observation``, ``reward``, ``done``, ``truncated`` or
            ``error``.

    Example:
        >>> import random
        >>> from openenv import Action, Environment, Observation, State
        >>> from openenv import GenericEnvClient, ReplayDiverged
        >>> class Dice(Environment[Action, Observation, State]):
        ...     SUPPORTS_CONCURRENT_SESSIONS = True
        ...     state = State()
        ...
        ...     def reset(self, seed: int | None = None) -> Observation:
        ...         return Observation()
        ...
        ...     def step(self, action: Action) -> Observation:
        ...         return Observation(reward=random.random())  # ignores the seed
        >>> env = GenericEnvClient.local(Dice)
        >>> env.keep_journal()
        >>> with env.sync() as env:
        ...     result = env.reset(seed=1)
        ...     result = env.step({})
        ...     try:
        ...         env.fork(1, replay=True)
        ...     except ReplayDiverged as error:
        ...         print(error.step, error.what)
        1 reward
    """

    def __init__(self, step: int, what: str) -> None:
        self.step = step
        self.what = what
        where = f"step {step}" if step else "reset"
        super().__init__(
            f"the replay went another way: the {what} of {where} is not what it was. The "
            "environment is not determined by its seed and actions, or has changed. The session "
            "has no episode now; call reset() to begin a new one"
        )


class ServerError(OpenEnvError, RuntimeError):
    """The server answered a request with an error.

    Attributes:
        code: The wire code, for example ``EXECUTION_ERROR``.
        message: The server's message.
        data: The whole ``data`` object of the error frame.
        errors: Pydantic's list of errors, if the server sent one; else empty.
        type: Class of the environment's exception, if its text was withheld; else None.
        incident: Id of that exception in the server's log; else None.
        log: Location of that log, if this client's provider knows it; else None.

    Example:
        >>> from blackjack_env.server.blackjack_environment import BlackjackEnvironment
        >>> from openenv import GenericEnvClient, ServerError
        >>> with GenericEnvClient.local(BlackjackEnvironment).sync() as env:
        ...     try:
        ...         env.step({"action": "hit"})  # before reset
        ...     except ServerError as error:
        ...         print(error.code)
        EXECUTION_ERROR
    """

    def __init__(self, message: str, code: str, data: Mapping[str, Any] | None = None) -> None:
        self.message = message
        self.code = code
        self.data = dict(data or {})
        errors = self.data.get("errors")
        self.errors: ErrorList = list(errors) if isinstance(errors, list) else []
        self.type = _text_or_none(self.data.get("type"))
        self.incident = _text_or_none(self.data.get("incident"))
        self.log: str | None = None
        super().__init__(message)

    def __str__(self) -> str:
        text = f"Server error: {self.message} (code: {self.code})"
        if self.log is not None and self.incident is not None:
            text += f"\nIncident {self.incident} is in {self.log}"
        return text + "".join(f"\n  {_error_line(error)}" for error in self.errors)

    def details(self) -> dict[str, Any]:
        return self.data


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _error_line(error: Any) -> str:
    if not isinstance(error, Mapping):
        return str(error)
    return f"{_refused_field(error)}, got {error.get('input')!r:.200}"


class MalformedRequest(ServerError):
    """The server could not read the request."""


class ValidationFailed(ServerError):
    """The request or the action did not fit the model; see `errors`.

    Example:
        >>> from blackjack_env.server.blackjack_environment import BlackjackEnvironment
        >>> from openenv import GenericEnvClient, ValidationFailed
        >>> with GenericEnvClient.local(BlackjackEnvironment).sync() as env:
        ...     result = env.reset()
        ...     try:
        ...         env.step({"action": "fold"})
        ...     except ValidationFailed as error:
        ...         print(error.errors[0]["loc"], error.errors[0]["msg"])
        ['action'] Input should be 'hit' or 'stand'
    """


class ExecutionFailed(ServerError):
    """The environment raised an exception during the request.

    Example:
        >>> from openenv import Action, Environment, Observation, State
        >>> from openenv import ExecutionFailed, GenericEnvClient
        >>> class Broken(Environment[Action, Observation, State]):
        ...     state = State()
        ...
        ...     def reset(self) -> Observation:
        ...         return Observation()
        ...
        ...     def step(self, action: Action) -> Observation:
        ...         raise RuntimeError("out of order")
        >>> with GenericEnvClient.local(Broken).sync() as env:
        ...     result = env.reset()
        ...     try:
        ...         env.step({})
        ...     except ExecutionFailed as error:
        ...         print(error.type)  # the server's log has the rest, under error.incident
        RuntimeError
    """


class ToolFailed(ExecutionFailed):
    """A tool failed or could not be called; the text is the tool's.

    Attributes:
        tool_name: Name of the tool.
        error_type: A value of `openenv.tools.ToolErrorType`; None if the server does not say.

    Example:
        >>> from openenv import ToolFailed
        >>> from openenv.client import MCPToolClient
        >>> from openenv.tools import MCPEnvironment, tool
        >>> class Calculator(MCPEnvironment):
        ...     @tool
        ...     def divide(self, a: float, b: float) -> float:
        ...         return a / b
        >>> with MCPToolClient.local(Calculator).sync() as env:
        ...     result = env.reset()
        ...     print(env.call_tool("divide", a=1, b=2))
        ...     try:
        ...         env.call_tool("divide", a=1, b=0)
        ...     except ToolFailed as error:
        ...         print(error.tool_name, error.code)
        0.5
        divide EXECUTION_ERROR
    """

    def __init__(
        self,
        message: str,
        code: str = ErrorCode.EXECUTION_ERROR.value,
        data: Mapping[str, Any] | None = None,
        *,
        tool_name: str = "",
        error_type: str | None = None,
    ) -> None:
        super().__init__(message, code, data)
        self.tool_name = tool_name
        self.error_type = error_type

    def __str__(self) -> str:
        return self.message


class CapacityError(ServerError):
    """The server has no free slot.

    Example:
        >>> from blackjack_env.server.blackjack_environment import BlackjackEnvironment
        >>> from openenv import CapacityError, GenericEnvClient, create_app
        >>> app = create_app(BlackjackEnvironment, max_concurrent_envs=1)
        >>> with GenericEnvClient.local(app).sync() as first:
        ...     result = first.reset()
        ...     second = GenericEnvClient.local(app, queue_timeout_s=0).sync()
        ...     try:
        ...         second.reset()
        ...     except CapacityError as error:
        ...         print(error.code)
        CAPACITY_REACHED
    """


class RateLimited(ServerError):
    """The key has exceeded a rate limit. The request was not carried out; the session continues.

    Example:
        >>> from echo_env.server.echo_environment import EchoEnvironment
        >>> from openenv import GenericEnvClient, RateLimited, create_app
        >>> from openenv.server import Key, KeyLimits
        >>> slow = Key("a-slow-key", limits=KeyLimits(requests_per_s=1))
        >>> app = create_app(EchoEnvironment, keys=[slow])
        >>> with GenericEnvClient.local(app, api_key="a-slow-key").sync() as env:
        ...     try:
        ...         for _ in range(100):
        ...             result = env.reset()
        ...     except RateLimited as error:
        ...         print(error.code)
        RATE_LIMITED
    """

    @property
    def retry_after_s(self) -> float:
        """Seconds after which to try again."""
        return float(self.data.get("retry_after_s", 1.0))


class FactoryFailed(ServerError):
    """The server could not construct the environment."""


class SessionFailed(ServerError):
    """The session does not exist, or could not be served."""


class SessionBusy(ServerError):
    """An overdue call, of this session or of another one on the same thread, has not returned yet;
    see `StepTimeout`.

    Example:
        >>> import time
        >>> from openenv import Action, Environment, Observation, State
        >>> from openenv import GenericEnvClient, SessionBusy, StepTimeout
        >>> class Slow(Environment[Action, Observation, State]):
        ...     state = State()
        ...
        ...     def reset(self) -> Observation:
        ...         return Observation()
        ...
        ...     def step(self, action: Action) -> Observation:
        ...         time.sleep(0.5)
        ...         return Observation(done=True)
        >>> with GenericEnvClient.local(Slow).sync() as env:
        ...     result = env.reset()
        ...     try:
        ...         env.step({}, timeout_s=0.1)
        ...     except StepTimeout:
        ...         pass
        ...     try:
        ...         env.reset(timeout_s=0.1)
        ...     except SessionBusy:
        ...         print("the step is still running")
        the step is still running
    """


class MessageTooLarge(ServerError, ValueError):
    """A request or an answer is over the size limit; sizes are in `data`."""


class NotSupportedByServer(ServerError, NotSupported):
    """The environment or the server lacks the requested feature."""

    def __init__(self, message: str, code: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, code, data)
        self.feature = str(self.data.get("feature", ""))


# ------------------------------------------------------------------ raised by a provider


class ProviderError(OpenEnvError, RuntimeError):
    """An environment could not be started or stopped."""

    def __init__(self, message: str, *, logs: str = "") -> None:
        self.logs = logs
        super().__init__(message + (f"\nLast lines of its log:\n{logs}" if logs else ""))


class ProviderExited(ProviderError):
    """The environment's process ended before becoming ready."""

    def __init__(self, message: str, *, exit_code: int | None, logs: str = "") -> None:
        self.exit_code = exit_code
        super().__init__(message, logs=logs)


class ProviderTimeout(ProviderError, TimeoutError):
    """The environment was not ready in time."""


# ------------------------------------------------------------------ how errors leave a server


class Outward(NamedTuple):
    """An error's codes for peers: WebSocket code, HTTP status, JSON-RPC code."""

    code: ErrorCode
    http_status: int
    json_rpc: int


OUTWARD: dict[type[BaseException], Outward] = {
    InvalidJSONError: Outward(ErrorCode.INVALID_JSON, 422, -32700),
    UnknownMessageTypeError: Outward(ErrorCode.UNKNOWN_TYPE, 422, -32601),
    InvalidMessageError: Outward(ErrorCode.VALIDATION_ERROR, 422, -32600),
    InvalidActionError: Outward(ErrorCode.VALIDATION_ERROR, 422, -32602),
    InvalidArgumentError: Outward(ErrorCode.VALIDATION_ERROR, 422, -32602),
    SessionCapacityError: Outward(ErrorCode.CAPACITY_REACHED, 503, -32000),
    EnvironmentFactoryError: Outward(ErrorCode.FACTORY_ERROR, 500, -32000),
    SessionNotFoundError: Outward(ErrorCode.SESSION_ERROR, 404, -32602),
    SessionClosedError: Outward(ErrorCode.SESSION_ERROR, 410, -32600),
    SessionCreationError: Outward(ErrorCode.SESSION_ERROR, 500, -32000),
    EnvironmentCrashed: Outward(ErrorCode.SESSION_ERROR, 500, -32000),
    SessionBusyError: Outward(ErrorCode.SESSION_BUSY, 409, -32000),
    StepTimeout: Outward(ErrorCode.STEP_TIMEOUT, 504, -32000),
    RequestTooLargeError: Outward(ErrorCode.TOO_LARGE, 413, -32000),
    TooLargeError: Outward(ErrorCode.TOO_LARGE, 500, -32000),
    NotSupported: Outward(ErrorCode.NOT_SUPPORTED, 501, -32601),
    Refused: Outward(ErrorCode.EXECUTION_ERROR, 500, -32603),
    InvalidReturnError: Outward(ErrorCode.EXECUTION_ERROR, 500, -32603),
    EncodingError: Outward(ErrorCode.EXECUTION_ERROR, 500, -32603),
    KeySessionsError: Outward(ErrorCode.CAPACITY_REACHED, 429, -32000),
    RateLimitError: Outward(ErrorCode.RATE_LIMITED, 429, -32000),
    NotAuthenticatedError: Outward(ErrorCode.NOT_AUTHENTICATED, 401, -32000),
    NotPermittedError: Outward(ErrorCode.NOT_PERMITTED, 403, -32000),
    MalformedHostError: Outward(ErrorCode.WRONG_HOST, 400, -32000),
    WrongHostError: Outward(ErrorCode.WRONG_HOST, 421, -32000),
    Exception: Outward(ErrorCode.EXECUTION_ERROR, 500, -32603),
}

CLIENT_SIDE: dict[ErrorCode, type[ServerError]] = {
    ErrorCode.INVALID_JSON: MalformedRequest,
    ErrorCode.UNKNOWN_TYPE: MalformedRequest,
    ErrorCode.VALIDATION_ERROR: ValidationFailed,
    ErrorCode.EXECUTION_ERROR: ExecutionFailed,
    ErrorCode.CAPACITY_REACHED: CapacityError,
    ErrorCode.FACTORY_ERROR: FactoryFailed,
    ErrorCode.SESSION_ERROR: SessionFailed,
    ErrorCode.SESSION_BUSY: SessionBusy,
    ErrorCode.TOO_LARGE: MessageTooLarge,
    ErrorCode.NOT_SUPPORTED: NotSupportedByServer,
    ErrorCode.RATE_LIMITED: RateLimited,
}

# The error that a client raises if a server refuses the connection with an HTTP status. For any
# other status it is `ConnectError`.
REFUSALS: dict[int, type[ConnectError]] = {
    401: AuthenticationError,
    403: PermissionRefused,
    410: ServerGone,
}


def words(error: BaseException) -> str:
    """Return an error's text, or the class's name if there is no text, as valid UTF-8.

    File names in a text may hold bytes that are not UTF-8.
    """
    try:
        text = str(error)
    except Exception:  # raised by the error's own `__str__`
        text = ""
    text = text or type(error).__name__
    return text.encode(errors="backslashreplace").decode()


def refusal(error: BaseException) -> str | None:
    """Return the environment's reason for refusing an action; None for any other error.

    An unexpected exception, reported as an incident, is not a refusal. Foreign servers of protocol
    version 0 do not make this distinction: there, every exception of the environment counts as one.
    """
    if isinstance(error, ValidationFailed):
        return "\n".join([error.message, *(_refused_field(one) for one in error.errors)])
    if isinstance(error, ExecutionFailed) and error.incident is None and error.type is None:
        return error.message
    return None


def _refused_field(error: Any) -> str:
    where = ".".join(str(part) for part in error.get("loc", ())) or "(value)"
    return f"{where}: {error.get('msg')}"


def outward(error: BaseException) -> Outward:
    """Return how `error` leaves a server: the row of `OUTWARD` for the nearest class."""
    for cls in type(error).__mro__:
        if cls in OUTWARD:
            return OUTWARD[cls]
    return OUTWARD[Exception]


def speaks(error: BaseException) -> bool:
    """Return whether an error's text is meant for the peer: `OUTWARD` has a row for the class."""
    return any(cls in OUTWARD and cls is not Exception for cls in type(error).__mro__)


def server_error(data: Mapping[str, Any]) -> ServerError | StepTimeout:
    """Convert the ``data`` of an error frame to the exception that a client raises."""
    code = str(data.get("code", "UNKNOWN"))
    message = str(data.get("message", "Unknown error"))
    if code == ErrorCode.STEP_TIMEOUT.value:
        timeout_s, is_running = data.get("timeout_s"), data.get("is_running") is True
        seconds = float(timeout_s) if isinstance(timeout_s, int | float) else float("nan")
        return StepTimeout(seconds, is_running=is_running, message=message)
    known = ErrorCode.__members__.get(code)
    kind = CLIENT_SIDE.get(known, ServerError) if known is not None else ServerError
    return kind(message, code, data)
