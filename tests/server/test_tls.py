"""TLS: the same episodes, and a certificate that does not fit."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from server.sockets import WAYS, app_of
from support.certificates import Certificates, certificates, of_loopback
from support.environments import CounterEnv, Do
from support.servers import NotAdopted, serving

from openenv import ConnectError, VectorEnv
from openenv._internal.net.tls import client_context
from openenv.providers._readiness import wait_until_healthy
from openenv.server.loading import TargetError
from openenv.server.run import tls_options

__all__ = ["of_loopback"]


def secure(url: str) -> str:
    return url.replace("http://", "https://")


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("version", ["0", "1"])
@pytest.mark.parametrize("way", WAYS)
def test_an_episode_is_played(
    way: str, version: str, loop: str, of_loopback: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", version)
    app: Any = app_of()
    app = NotAdopted(app) if way == "asgi" else app
    with serving(app, ws=WAYS[way], loop=loop, **of_loopback.of_server) as url:
        with CounterEnv(secure(url), ca_file=of_loopback.authority) as env:
            env.reset()
            for size in (1, 1000, 90_000):
                result = env.step(Do(what="echo", value="x" * size))
                assert result.observation.value == "x" * size
            assert env.state().step_count == 3
            sibling: Any = env.new_session()  # closed with the other
            assert sibling.reset().observation.text
        ca_file = of_loopback.authority
        with VectorEnv(secure(url), 8, client=CounterEnv, ca_file=ca_file) as envs:
            envs.reset()
            assert list(envs.step([Do()] * 8)[1]) == [1.0] * 8
        context = ssl.create_default_context(cafile=ca_file)
        assert httpx.get(secure(url) + "/health", verify=context).status_code == 200


def test_the_cookie_of_an_episode_over_https_goes_nowhere_else(of_loopback: Certificates) -> None:
    context = ssl.create_default_context(cafile=of_loopback.authority)
    with serving(app_of(), **of_loopback.of_server) as url:
        cookie = httpx.post(secure(url) + "/reset", verify=context).headers["set-cookie"]
        assert "Secure" in cookie and "HttpOnly" in cookie and "SameSite=strict" in cookie
    with serving(app_of()) as url:
        assert "Secure" not in httpx.post(url + "/reset").headers["set-cookie"]


def test_the_authority_may_be_named_by_a_variable(
    of_loopback: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(app_of(), **of_loopback.of_server) as url:
        with pytest.raises(ConnectError):
            CounterEnv(secure(url)).reset()
        monkeypatch.setenv("OPENENV_CA_FILE", of_loopback.authority)
        with CounterEnv(secure(url)) as env:
            env.reset()


# ------------------------------------------------------------------ what does not fit


def words_of(url: str, **options: Any) -> str:
    with pytest.raises(ConnectError) as caught:
        CounterEnv(url, **options).reset()
    return str(caught.value)


def test_an_unknown_authority_is_said_and_so_is_the_cure(of_loopback: Certificates) -> None:
    with serving(app_of(), **of_loopback.of_server) as url:
        words = words_of(secure(url))
    assert "certificate does not fit" in words and "ca_file=" in words


def test_a_certificate_for_another_name_is_said_and_so_is_the_cure(tmp_path: Path) -> None:
    other = certificates(tmp_path, "env.example")
    with serving(app_of(), **other.of_server) as url:
        words = words_of(secure(url), ca_file=other.authority)
    assert "127.0.0.1" in words and "a name that the certificate is for" in words


def test_a_server_without_tls_is_said_to_be_so(of_loopback: Certificates) -> None:
    with serving(app_of()) as url:
        assert "no TLS" in words_of(secure(url), ca_file=of_loopback.authority)


def test_a_server_with_tls_is_said_to_be_so(of_loopback: Certificates) -> None:
    with serving(app_of(), **of_loopback.of_server) as url:
        assert "https://" in words_of(url)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_without_certificates_is_named(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "authority.pem"
    if content is not None:
        path.write_text(content)
    assert str(path) in words_of("https://127.0.0.1:1", ca_file=str(path))


def test_a_file_that_has_changed_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = (certificates(tmp_path / name, "a.example") for name in ("one", "two"))
    first = client_context(one.authority)
    assert client_context(one.authority) is first
    Path(one.authority).write_bytes(Path(two.authority).read_bytes())
    assert (
        client_context(one.authority).get_ca_certs() == client_context(two.authority).get_ca_certs()
    )


# ------------------------------------------------------------------ the server's own files


def test_files_that_do_not_fit_are_refused_before_anything_is_served(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one, other = certificates(tmp_path, "a"), certificates(tmp_path / "other", "a")
    assert tls_options(None, None, None) == {}
    assert tls_options(one.certificate, one.private_key, None)["ssl_certfile"] == one.certificate
    wrong: list[tuple[str | None, str | None]] = [
        (None, one.private_key),
        (one.certificate, None),
        (one.certificate, other.private_key),
        (one.certificate, str(tmp_path / "nowhere")),
        (one.authority, one.certificate),
    ]
    for files in wrong:
        with pytest.raises(TargetError):
            tls_options(*files, None)


def test_an_encrypted_private_key_is_opened_by_its_password(
    tmp_path: Path, encrypted: Callable[[str, str], str]
) -> None:
    made = certificates(tmp_path, "127.0.0.1")
    key = encrypted(made.private_key, "planted-password")
    password = tmp_path / "password"
    password.write_text("planted-password\n")
    options = tls_options(made.certificate, key, str(password))
    with (
        serving(app_of(), **options) as url,
        CounterEnv(secure(url), ca_file=made.authority) as env,
    ):
        env.reset()
    password.write_text("planted-wrong")
    for file in (str(password), None):
        with pytest.raises(TargetError) as caught:
            tls_options(made.certificate, key, file)
        assert "planted" not in str(caught.value)


@pytest.fixture
def encrypted(tmp_path: Path) -> Callable[[str, str], str]:
    from cryptography.hazmat.primitives import serialization as how

    def encrypt(path: str, password: str) -> str:
        key = how.load_pem_private_key(Path(path).read_bytes(), None)
        out = tmp_path / "encrypted.key"
        out.write_bytes(
            key.private_bytes(
                how.Encoding.PEM,
                how.PrivateFormat.PKCS8,
                how.BestAvailableEncryption(password.encode()),
            )
        )
        return str(out)

    return encrypt


@pytest.mark.slow
def test_a_providers_readiness_check_knows_the_authority(
    of_loopback: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(app_of(), **of_loopback.of_server) as url:
        with pytest.raises(TimeoutError):
            wait_until_healthy(secure(url), 0.3, lambda: None, lambda _: "")
        monkeypatch.setenv("OPENENV_CA_FILE", of_loopback.authority)
        wait_until_healthy(secure(url), 5.0, lambda: None, lambda _: "")
