"""`openenv gateway`: a single address in front of many servers."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openenv._internal.logs import set_up_logs
from openenv.cli._console import CommandError, MisuseError, emit, say
from openenv.cli._options import argument, option, takes_options
from openenv.errors import OpenEnvError

if TYPE_CHECKING:
    from openenv.gateway.run import ResolvedBackends

DEFAULT = "default"


@takes_options
def gateway(
    servers: list[str] = argument(
        ...,
        metavar="[NAME=]URL...",
        help="Servers, as URL, or as NAME=URL for several environments; dns://HOST:PORT "
        "stands for all addresses of a host name.",
    ),
    host: str = option("127.0.0.1", help="Address to listen on."),
    port: int = option(8000, min=0, max=65535, help="Port to listen on; 0 chooses a free port."),
    api_key_file: Path | None = option(
        None,
        help="File of accepted keys, as for openenv serve; by default those of "
        "OPENENV_API_KEY_FILE and OPENENV_API_KEY. Without keys, everyone has "
        "access.",
    ),
    server_key_file: Path | None = option(
        None, help="File with the servers' key, if it differs from the gateway's."
    ),
    sessions_per_connection: int = option(
        32, min=1, help="Number of consecutive sessions of a client that go to the same server."
    ),
    drain_s: float = option(
        30.0, min=0.0, help="Seconds that clients have to finish after the gateway is told to stop."
    ),
    ssl_certfile: Path | None = option(
        None, help="Serve https and wss with this TLS certificate (PEM)."
    ),
    ssl_keyfile: Path | None = option(None, help="Private key of the certificate (PEM)."),
    as_json: bool = option(False, "--json", help="Print the gateway's address as JSON."),
) -> None:
    """Route clients to many servers; new sessions go to the least busy server.

    Examples:
        openenv gateway http://10.0.0.1:8000 http://10.0.0.2:8000
        openenv gateway echo=http://10.0.0.1:8000 chess=dns://chess.internal:8000 --port 9000
    """
    from openenv.gateway.backends import Backends
    from openenv.gateway.gateway import Gateway
    from openenv.gateway.run import run
    from openenv.server.auth import warn_if_open
    from openenv.server.keyfile import make_keyring, read_key_file
    from openenv.settings import use_api_key_file

    set_up_logs()
    logging.getLogger("openenv").setLevel(logging.INFO)
    try:
        if api_key_file is not None:
            use_api_key_file(str(api_key_file))
        keys = make_keyring(None)
        key = None if server_key_file is None else read_key_file(server_key_file)[0].key
        plain, resolved = _parse_servers(servers, key)
        behind = Backends(plain)
    except (OpenEnvError, ValueError) as error:
        raise MisuseError(str(error)) from None
    if keys is None:
        warn_if_open(host)
    tls = None
    if ssl_certfile is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            tls.load_cert_chain(ssl_certfile, ssl_keyfile)
        except (OSError, ssl.SSLError) as error:
            raise CommandError(f"{ssl_certfile} cannot be used: {error}") from None
    scheme = "http" if tls is None else "https"

    def tell(port: int) -> None:
        url = f"{scheme}://{host}:{port}"
        if as_json:
            emit({"url": url, "environments": behind.environments, "servers": len(behind)})
        count = f"{len(behind)} server{'s' if len(behind) > 1 else ''}"
        say(f"gateway at {url}, in front of {count}")
        for name in behind.environments:
            if len(behind.environments) > 1 or name != DEFAULT:
                say(f"  {name}: {url}/envs/{name}")

    passing = Gateway(behind, keys=keys, sessions_per_connection=sessions_per_connection)
    try:
        run(
            passing,
            host=host,
            port=port,
            tls=tls,
            resolved=resolved,
            drain_s=drain_s,
            on_listening=tell,
        )
    except OSError as error:
        raise CommandError(f"cannot listen on {host} port {port}: {error.strerror}") from None


def _parse_servers(given: list[str], key: str | None) -> tuple[list[Any], list[ResolvedBackends]]:
    from openenv.gateway.backends import Backend
    from openenv.gateway.run import ResolvedBackends

    plain: list[Any] = []
    resolved = []
    for one in given:
        name, equals, url = one.partition("=")
        if not equals or "/" in name or ":" in name:
            name, url = DEFAULT, one
        if url.startswith("dns://"):
            resolved.append(ResolvedBackends(name, url, key))
        else:
            plain.append(Backend(name, url, key))
    return plain, resolved
