"""`openenv capture`: a proxy in front of a model's API that records agents' calls."""

from __future__ import annotations

from pathlib import Path

from openenv._internal.logs import set_up_logs
from openenv.cli._console import CommandError, MisuseError, emit, say, warn
from openenv.cli._options import option, takes_options


@takes_options
def capture(
    upstream: str = option(
        ..., help="Base URL of the model's API, such as http://localhost:8000/v1."
    ),
    out: Path = option(..., help="Write the recorded calls to this directory."),
    model: str | None = option(
        None,
        help="Name of the model to send to the upstream; by default the name that the agent sends.",
    ),
    host: str = option("127.0.0.1", help="Address to listen on."),
    port: int = option(8100, min=0, max=65535, help="Port to listen on; 0 chooses a free port."),
    provider: str = option(
        "openai", help="API of the upstream: openai (or compatible), or anthropic."
    ),
    capture_level: str = option(
        "tokens", "--level", help="Detail to request from the upstream: tokens, logprobs or text."
    ),
    registered: bool = option(
        False,
        help="Accept only keys of sessions created by POST /sessions; by default any "
        "key makes a session. Requires OPENENV_CAPTURE_ADMIN_KEY.",
    ),
    max_output_tokens: int = option(
        8192, min=0, help="Maximum number of tokens in an answer; 0 for no limit."
    ),
    max_model_calls: int = option(
        0, min=0, help="Maximum number of calls of a session; 0 for no limit."
    ),
    max_session_tokens: int = option(
        0, min=0, help="Maximum number of tokens that a session reads and writes; 0 for no limit."
    ),
    max_sessions: int = option(4096, min=1, help="Maximum number of sessions."),
    check: bool = option(True, help="Check first that the upstream returns tokens."),
    as_json: bool = option(
        False, "--json", help="Print the proxy's address and each finished session as JSON."
    ),
) -> None:
    """Run a proxy in front of a model, and record agents' calls with exact tokens for training.

    Point an agent at the proxy by OPENAI_BASE_URL=http://HOST:PORT/v1, or
    ANTHROPIC_BASE_URL=http://HOST:PORT. The agent's key names the session.

    OPENENV_LLM_API_KEY holds the upstream's key.

    Examples:
        openenv capture --upstream http://localhost:8000/v1 --out calls
        openenv capture --upstream http://localhost:8000/v1 --model Qwen/Qwen3-8B --out calls --json
    """
    from openenv.capture.export import export_session, summarise
    from openenv.capture.files import Recorder
    from openenv.capture.runner import serve_app
    from openenv.capture.server import create_app
    from openenv.capture.sessions import CaptureSession
    from openenv.server.run import bind
    from openenv.settings import capture_admin_key, upstream_model_key

    set_up_logs()
    admin_key = capture_admin_key()
    if registered and admin_key is None:
        raise MisuseError(
            "--registered lets nobody in: there is no admin key",
            hint="set OPENENV_CAPTURE_ADMIN_KEY, and send it with POST /sessions",
        )
    if check and provider == "openai" and capture_level == "tokens" and model is not None:
        _check(upstream, model, upstream_model_key())

    def ended(session: CaptureSession) -> None:
        document = export_session(session)
        say(summarise(document))
        if as_json:
            told = {name: document[name] for name in ("session_id", "stats", "trainable")}
            emit({**told, "validation": document["validation"]})

    recorder = Recorder(out)
    try:
        app = create_app(
            llm_url=upstream,
            model=model,
            provider=provider,
            capture_level=capture_level,
            require_registered=registered,
            api_key=upstream_model_key(),
            admin_key=admin_key,
            max_output_tokens=max_output_tokens or None,
            max_model_calls=max_model_calls,
            max_session_tokens=max_session_tokens,
            max_sessions=max_sessions,
            on_call=recorder,
            on_end=ended,
        )
        bound = bind(host, port)
    except ValueError as error:
        raise MisuseError(str(error)) from None
    except OSError as error:
        words = error.strerror or error
        raise CommandError(f"cannot listen on {host} port {port}: {words}") from None
    url = f"http://{host}:{bound.getsockname()[1]}"
    if as_json:
        emit({"url": url, "calls": str(recorder.path)})
    say(f"capture proxy at {url}, in front of {upstream}; calls go to {recorder.path}")
    say(f"  OPENAI_BASE_URL={url}/v1   ANTHROPIC_BASE_URL={url}")
    try:
        serve_app(app, bound)
    finally:
        recorder.close()


def _check(upstream: str, model: str, key: str | None) -> None:
    """Report whether the upstream returns tokens; text alone is no error, since it may suffice."""
    from openenv.capture.export import TOKENS_REMEDY
    from openenv.capture.probing import validate_llm

    try:
        report = validate_llm(upstream, model, api_key=key, check_tools=False)
    except ValueError as error:
        raise MisuseError(str(error)) from None
    if not report.ok:
        raise CommandError(report.summary(), hint="--no-check starts it all the same")
    say(report.summary())
    if not report.trainable:
        warn(f"what it answers cannot be trained on: {TOKENS_REMEDY}")
