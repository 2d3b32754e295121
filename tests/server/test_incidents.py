"""What a peer learns of an exception that nobody meant to raise, and what the log does."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from support.leaky import (
    SECRET,
    AsyncLeaky,
    Leaky,
    LeakyEnv,
    LeakyFactory,
    RefusingFactory,
    Try,
)

from openenv import (
    Environment,
    ExecutionFailed,
    GenericEnvClient,
    ProcessProvider,
    create_app,
    settings,
)
from openenv._internal.redaction import redact, redacted, register_secret
from openenv.errors import (
    ConnectError,
    EnvironmentFactoryError,
    FactoryFailed,
    ProviderExited,
    ServerError,
    ValidationFailed,
)

Serve = Callable[[Any], str]
INCIDENT = re.compile(r"[0-9a-f]{12}")


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_API_KEY", SECRET)
    monkeypatch.delenv("OPENENV_DEBUG", raising=False)


def logged(caplog: pytest.LogCaptureFixture, incident: str | None) -> str:
    """The one entry of an incident, as any formatter writes it."""
    written = logging.Formatter("%(message)s")
    entries = [written.format(r) for r in caplog.records if getattr(r, "incident", "") == incident]
    assert len(entries) == 1, (incident, [r.getMessage() for r in caplog.records])
    return entries[0]


def fails(url: str, what: str) -> ServerError:
    """What a client is told of a step that goes wrong."""
    with LeakyEnv(base_url=url) as env, pytest.raises(ServerError) as caught:
        env.reset()
        env.step(Try(what=what))
    return caught.value


# ------------------------------------------------------------------ over every door


@pytest.mark.parametrize("environment", [Leaky, AsyncLeaky])
@pytest.mark.parametrize("version", ["0", "1"])
def test_an_exception_is_its_class_and_an_incident_that_the_log_has_in_full(
    serve: Serve,
    version: str,
    environment: type[Environment[Any, Any, Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", version)
    error = fails(serve(create_app(environment)), "raise")
    assert isinstance(error, ExecutionFailed)
    assert (error.type, error.code) == ("KeyError", "EXECUTION_ERROR")
    assert error.incident is not None and INCIDENT.fullmatch(error.incident)
    assert error.message.startswith(f"KeyError in step; incident {error.incident}: ")
    assert "a step of" not in str(error) and SECRET not in str(error.data)
    entry = logged(caplog, error.incident)
    assert "KeyError: 'a step of ***'" in entry
    assert "OSError: the inner one of a step: ***" in entry
    assert "leaky.py" in entry and SECRET not in entry


def test_an_exception_over_http_is_an_incident_as_well(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    answer = httpx.post(f"{serve(create_app(Leaky))}/reset", json={"what": "raise"})
    body = answer.json()
    assert (answer.status_code, body["code"], body["type"]) == (500, "EXECUTION_ERROR", "KeyError")
    assert body["detail"].startswith(f"KeyError in reset; incident {body['incident']}: ")
    assert SECRET not in answer.text
    assert SECRET not in logged(caplog, body["incident"])


@pytest.mark.parametrize(("what", "name"), [("raise", "KeyError"), ("odd", "Odd")])
def test_an_incident_in_a_worker_process_has_one_id_here_and_there(
    serve: Serve, capfd: pytest.CaptureFixture[str], what: str, name: str
) -> None:
    error = fails(serve(create_app(Leaky, workers=1)), what)
    assert (error.type, error.message.split(";")[0]) == (name, f"{name} in step")
    assert error.incident is not None and SECRET not in str(error.data)
    log = capfd.readouterr().err  # which the worker shares
    assert log.count(f"incident {error.incident}: {name} in step of session ") == 1
    assert "leaky.py" in log and "***" in log and SECRET not in log


@pytest.mark.parametrize("workers", [None, 1])
@pytest.mark.parametrize("debug", [False, True])
def test_an_exception_that_cannot_be_put_into_words_is_answered_all_the_same(
    serve: Serve, workers: int | None, debug: bool
) -> None:
    error = fails(serve(create_app(Leaky, workers=workers, debug=debug)), "mute")
    assert error.type == "Mute" and error.incident is not None
    assert error.message.startswith("Mute") and SECRET not in str(error.data)


def test_what_would_end_a_process_is_named_by_its_own_class(serve: Serve) -> None:
    error = fails(serve(create_app(Leaky)), "exit")
    assert (error.type, error.message.split(";")[0]) == ("SystemExit", "SystemExit in step")
    assert SECRET not in str(error.data)


@pytest.mark.parametrize("workers", [None, 1])
def test_a_factory_that_fails_tells_no_more(serve: Serve, workers: int | None) -> None:
    url = serve(create_app(LeakyFactory, workers=workers))
    with pytest.raises(FactoryFailed) as caught, LeakyEnv(base_url=url) as env:
        env.reset()
    error = caught.value
    assert (error.type, error.data["factory_name"]) == ("KeyError", "LeakyFactory")
    assert error.incident is not None
    assert error.message.startswith(
        "Environment factory 'LeakyFactory' failed to create instance: KeyError; "
        f"incident {error.incident}"
    )
    health = httpx.get(f"{url}/health").text
    assert error.incident in health and SECRET not in health + str(error.data)
    assert SECRET not in httpx.get(f"{url}/metadata").text


def test_each_time_is_an_incident_of_its_own(serve: Serve) -> None:
    url = serve(create_app(Leaky))
    assert fails(url, "raise").incident != fails(url, "raise").incident


# ------------------------------------------------------------------ what is meant for the peer


@pytest.mark.parametrize("workers", [None, 1])
def test_a_refusal_reaches_the_caller_in_its_own_words(serve: Serve, workers: int | None) -> None:
    error = fails(serve(create_app(Leaky, workers=workers)), "refuse")
    assert error.data == {"message": "that square is taken", "code": "EXECUTION_ERROR"}
    assert (error.type, error.incident) == (None, None)


def test_a_refusal_of_a_factory_reaches_the_caller_too(serve: Serve) -> None:
    url = serve(create_app(RefusingFactory))
    with pytest.raises(FactoryFailed, match="there is no licence"), LeakyEnv(base_url=url) as env:
        env.reset()


def test_a_validation_error_quotes_its_sender_but_no_secret(serve: Serve) -> None:
    url = serve(create_app(Leaky))
    with GenericEnvClient(base_url=url) as env:
        env.reset()
        with pytest.raises(ValidationFailed) as wrong:
            env.step({"what": "forbidden"})
        assert "may not be used with ***" in wrong.value.errors[0]["msg"]
        with pytest.raises(ValidationFailed) as long:
            env.step({"size": "x" * 100_000})
        assert len(str(long.value.data)) < 5000
        with pytest.raises(ValidationFailed) as many:
            env.step({f"unknown {n}": 1 for n in range(5000)})
        assert len(many.value.errors) == 101
        assert many.value.errors[-1]["msg"] == "and 4900 more"


# ------------------------------------------------------------------ with debug


@pytest.mark.parametrize("version", ["0", "1"])
def test_with_debug_the_text_is_sent_but_no_secret(
    serve: Serve, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", version)
    error = fails(serve(create_app(Leaky, debug=True)), "raise")
    assert error.message == "'a step of ***'"
    assert error.type == "KeyError" and error.incident is not None
    assert error.type == "KeyError" and error.incident is not None


def test_with_debug_over_http_and_from_a_worker(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_DEBUG", "1")
    url = serve(create_app(Leaky, workers=1))
    body = httpx.post(f"{url}/reset", json={"what": "raise"}).json()
    assert body["detail"] == "'a step of ***'"
    assert fails(url, "odd").message == "*** 2"


def test_an_application_may_decide_against_the_variable(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_DEBUG", "1")
    assert "a step" not in fails(serve(create_app(Leaky, debug=False)), "raise").message


@pytest.mark.parametrize("what", ["class", "application"])
def test_in_the_same_process_the_text_is_told(what: str) -> None:
    where: Any = Leaky if what == "class" else create_app(Leaky)
    with LeakyEnv.local(where) as env, pytest.raises(ExecutionFailed, match=r"a step of \*\*\*"):
        env.reset()
        env.step(Try(what="raise"))


# ------------------------------------------------------------------ a provider's server

TARGET = f"{Leaky.__module__}:Leaky"


@pytest.mark.slow
def test_the_client_of_a_provider_says_where_the_log_is() -> None:
    provider = ProcessProvider(TARGET)
    with LeakyEnv.with_provider(provider) as env:
        env.reset()
        with pytest.raises(ExecutionFailed) as caught:
            env.step(Try(what="raise"))
        error = caught.value
        assert error.log is not None and f"is in {error.log}" in str(error)
        with open(error.log) as log:
            written = log.read()
        assert f"incident {error.incident}" in written and SECRET not in written


@pytest.mark.slow
def test_a_server_that_does_not_start_shows_no_secret_of_its_own(tmp_path: Any) -> None:
    file = tmp_path / "wrong.py"
    file.write_text("import os\nraise RuntimeError(os.environ['OTHER_TOKEN'])\n")
    other = "a-token-of-the-server"
    provider = ProcessProvider(file, env_vars={"OTHER_TOKEN": other})
    with pytest.raises(ProviderExited) as caught:
        provider.start()
        provider.wait_for_ready()
    assert "RuntimeError: ***" in caught.value.logs and other not in str(caught.value)
    assert redact(other) == "***"


def test_a_password_in_an_address_is_not_quoted() -> None:
    with pytest.raises(ConnectError) as caught, LeakyEnv(base_url="ws://me:hunter2@127.0.0.1:1"):
        pass
    assert "ws://127.0.0.1:1/ws" in str(caught.value) and "hunter2" not in str(caught.value)


# ------------------------------------------------------------------ what is a secret


def test_what_looks_like_a_secret_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PASSWORD", "p'ss w/rd \\ long")
    monkeypatch.setenv("SHORT_KEY", "abc")
    monkeypatch.setenv("HARMLESS", "in full view")
    assert redact("abc in full view") == "abc in full view"
    assert redact(repr({"x": os.environ["MY_PASSWORD"]})) == """{'x': "***"}"""
    assert redact("?q=p%27ss%20w%2Frd%20%5C%20long") == "?q=***"
    assert redact("Authorization: Bearer abcdefgh12345678") == "Authorization: Bearer ***"
    assert redact("GET /x?api_key=12&b=3") == "GET /x?api_key=***&b=3"
    assert redact("https://me:hunter2@host/") == "https://me:***@host/"
    assert redact("https://host:80/a@b") == "https://host:80/a@b"
    assert redact("git+https://ghp_0123456789@host/a") == "git+https://***@host/a"
    for harmless in ("ssh://git@host/", "https://somebody.example/@a", "http://me@host/"):
        assert redact(harmless) == harmless


def test_the_key_that_a_server_has_taken_out_of_its_variables_is_hidden_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "_hidden", {})
    monkeypatch.setenv("OPENENV_API_KEY", "planted-of-the-operator")
    settings.hide_keys()
    assert "OPENENV_API_KEY" not in os.environ
    assert redact("x planted-of-the-operator y") == "x *** y"


def test_a_registered_secret_is_hidden_wherever_it_stands() -> None:
    register_secret("handed-out-to-nobody")
    register_secret("short")
    value = {"a": ["x handed-out-to-nobody", 1], "handed-out-to-nobody": None, "b": "short"}
    assert redacted(value) == {"a": ["x ***", 1], "***": None, "b": "short"}


def test_a_factory_error_of_ours_keeps_the_words_of_the_public_package() -> None:
    assert str(EnvironmentFactoryError("f")) == "Environment factory 'f' failed to create instance."
