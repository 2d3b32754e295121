"""The way out of a sandbox leads to the hosts that its policy names, and to no other."""

from __future__ import annotations

import contextlib
import http.server
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.amounts import rest
from support.certificates import certificates
from support.waiting import wait_until

from openenv.sandbox import Interpreter, Sandbox, SandboxPolicy, SandboxUnavailable
from openenv.sandbox.inside.forward import relay
from openenv.sandbox.proxy import MAX_HEAD, Proxy, is_public

Make = Callable[..., Sandbox]
Ask = Callable[..., bytes]

WORDS = b"from outside"


class Handler(http.server.BaseHTTPRequestHandler):
    """Says what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.say(f"{self.command} {self.path} {WORDS.decode()}".encode())

    def do_POST(self) -> None:
        self.say(self.rfile.read(int(self.headers["Content-Length"])))

    def say(self, words: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(words)))
        self.end_headers()
        self.wfile.write(words)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(certificate: tuple[str, str] | None = None) -> Iterator[int]:
    """Serve on the loopback, by TLS where there is a certificate and a key; the port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving() as port:
        yield port


@pytest.fixture(scope="module")
def other_port() -> Iterator[int]:
    """Of a server that no policy of these tests names."""
    with serving() as port:
        yield port


# ------------------------------------------------------------------ the proxy by itself


@pytest.fixture
def ask() -> Iterator[Ask]:
    """`ask(hosts, request)`: what a proxy that knows `hosts` answers."""
    with contextlib.ExitStack() as stack:

        def ask(hosts: tuple[str, ...], *parts: bytes) -> bytes:
            proxy = Proxy(hosts)
            stack.callback(proxy.close)
            with socket.socket(socket.AF_UNIX) as one:
                one.settimeout(20)
                one.connect(str(proxy.path))
                for part in parts:
                    one.sendall(part)
                answer = b""
                while data := one.recv(2**16):
                    answer += data
            return answer

        yield ask


def get(host: str, port: int) -> bytes:
    return f"GET http://{host}:{port}/path?query HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def test_a_host_of_the_list_is_asked(ask: Ask, port: int) -> None:
    answer = ask((f"127.0.0.1:{port}",), get("127.0.0.1", port))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"GET /path?query " + WORDS)


def test_names_are_the_same_in_any_case(ask: Ask, port: int) -> None:
    answer = ask((f"LocalHost:{port}",), get("LOCALHOST", port))
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_request_may_come_in_parts(ask: Ask, port: int) -> None:
    request = get("127.0.0.1", port)
    answer = ask((f"127.0.0.1:{port}",), *(request[n : n + 7] for n in range(0, len(request), 7)))
    assert answer.endswith(WORDS)


def test_what_is_sent_arrives(ask: Ask, port: int) -> None:
    body = os.urandom(2**18)
    head = (
        f"POST http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answer = ask((f"127.0.0.1:{port}",), head.encode(), body)
    assert answer.partition(b"\r\n\r\n")[2] == body


def test_what_is_sent_with_its_head_arrives(ask: Ask, port: int) -> None:
    body = b"one\r\nproxy-word: two\r\nconnection: three\r\nfour"
    head = (
        f"POST http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answer = ask((f"127.0.0.1:{port}",), head.encode() + body)
    assert answer.partition(b"\r\n\r\n")[2] == body


@pytest.mark.parametrize(
    ("hosts", "asked"),
    [
        ((), "127.0.0.1"),
        (("example.org:80", "*.example.org:{port}"), "127.0.0.1"),
        (("127.0.0.1:{port}",), "localhost"),
        (("127.0.0.1:{port}",), "127.0.0.2"),
        (("127.0.0.1:{port}",), "2130706433"),  # the same, as one number
        (("127.0.0.1:{port}",), "[::1]"),
        rest(("127.0.0.1:{port}",), "127.0.0.1.example.org"),
        rest(("*.example.org:{port}",), "example.org"),
        (("*.example.org:{port}",), "bad-example.org"),
    ],
)
def test_another_host_is_refused(
    ask: Ask, other_port: int, hosts: tuple[str, ...], asked: str
) -> None:
    known = tuple(host.format(port=other_port) for host in hosts)
    for request in (get(asked, other_port), connect(asked, other_port)):
        answer = ask(known, request)
        assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
        assert b"is none of the hosts that this sandbox may ask" in answer


def test_another_port_of_a_host_is_refused(ask: Ask, port: int, other_port: int) -> None:
    for request in (get("127.0.0.1", other_port), connect("127.0.0.1", other_port)):
        assert ask((f"127.0.0.1:{port}",), request).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("hosts", ["*.0.0.1:{port}", "*.1:{port}", "*:{port}"])
def test_a_wildcard_leads_to_no_private_address(ask: Ask, port: int, hosts: str) -> None:
    """Whoever owns the names below a wildcard chooses their addresses."""
    for request in (get("127.0.0.1", port), connect("127.0.0.1", port)):
        answer = ask((hosts.format(port=port),), request)
        assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
        assert b"127.0.0.1, which is no public address" in answer


def test_a_name_below_a_wildcard_that_is_named_itself_may_be_private(ask: Ask, port: int) -> None:
    hosts = (f"*.0.0.1:{port}", f"127.0.0.1:{port}")
    assert ask(hosts, get("127.0.0.1", port)).endswith(WORDS)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"502"),
        rest(b"GET ftp://127.0.0.1/ HTTP/1.1\r\n\r\n", b"502"),
        (b"GET file:///etc/passwd HTTP/1.1\r\n\r\n", b"502"),
        (b"CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n", b"502"),
        (b"\xff\xfe\r\n\r\n", b"502"),
    ],
)
def test_what_is_no_request_of_a_proxy_is_refused(ask: Ask, request_: bytes, status: bytes) -> None:
    assert ask(("127.0.0.1:80",), request_).startswith(b"HTTP/1.1 " + status)


def test_a_host_that_does_not_answer_is_told(ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert ask((f"127.0.0.1:{port}",), get("127.0.0.1", port)).startswith(b"HTTP/1.1 502 ")


def test_a_head_without_end_is_not_read_on(ask: Ask) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        assert ask((), b"GET " + b"x" * 2**18) == b""


def test_the_head_of_a_request_has_a_bound(port: int) -> None:
    """Who sends one without an end is told so, and another connection is served meanwhile."""
    with (
        contextlib.closing(Proxy((f"127.0.0.1:{port}",))) as proxy,
        socket.socket(socket.AF_UNIX) as endless,
        socket.socket(socket.AF_UNIX) as other,
    ):
        for one in (endless, other):
            one.settimeout(20)
            one.connect(str(proxy.path))
        endless.sendall(b"GET http://a/ HTTP/1.1\r\nX: " + b"x" * (MAX_HEAD // 2))
        other.sendall(connect("127.0.0.1", port))
        assert other.recv(2**16).startswith(b"HTTP/1.1 200 ")
        endless.sendall(b"x" * (MAX_HEAD // 2))
        told = endless.recv(2**16)
        assert told.startswith(b"HTTP/1.1 431 ") and b"over 65536 bytes" in told
        other.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = b""
        while WORDS not in answer:
            part = other.recv(2**16)
            assert part, answer
            answer += part


def test_connections_have_a_bound(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is told so; it is let in once another has ended."""
    monkeypatch.setattr("openenv.sandbox.proxy.MAX_CONNECTIONS", 3)
    with (
        contextlib.closing(Proxy((f"127.0.0.1:{port}",))) as proxy,
        contextlib.ExitStack() as stack,
    ):

        def another() -> socket.socket:
            made = stack.enter_context(socket.socket(socket.AF_UNIX))
            made.settimeout(20)
            made.connect(str(proxy.path))
            return made

        held = [another() for _ in range(3)]
        for one in held:
            one.sendall(connect("127.0.0.1", port))
            assert one.recv(2**16).startswith(b"HTTP/1.1 200 ")
        for _ in range(3):
            assert another().recv(2**16).startswith(b"HTTP/1.1 503 ")
        held[0].close()

        def is_let_in() -> bool:
            one = another()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                one.sendall(connect("127.0.0.1", port))
                return one.recv(2**16).startswith(b"HTTP/1.1 200 ")
            return False

        wait_until(is_let_in, 10)
        held[1].sendall(get("127.0.0.1", port))
        assert held[1].recv(2**16).startswith(b"HTTP/1.1 200 "), "nor did the others notice"


def test_a_side_that_does_not_read_does_not_stop_what_it_sends() -> None:
    one, near = socket.socketpair()
    other, far = socket.socketpair()
    with one, near, other, far:
        thread = threading.Thread(target=relay, args=(one, other), daemon=True)
        thread.start()
        near.settimeout(0.5)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while True:
                sent += near.send(b"x" * 2**16)
        far.sendall(b"back")
        near.settimeout(20)
        assert near.recv(4) == b"back"
        near.shutdown(socket.SHUT_WR)
        far.shutdown(socket.SHUT_WR)
        far.settimeout(20)
        assert sum(map(len, iter(lambda: far.recv(2**16), b""))) == sent
        assert near.recv(1) == b""
        thread.join(20)
        assert not thread.is_alive()


def connect(host: str, port: int) -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()


def test_a_closed_proxy_lets_nobody_out(port: int) -> None:
    proxy = Proxy((f"127.0.0.1:{port}",))
    folder = proxy.path.parent
    proxy.close()
    assert not folder.exists()


# ------------------------------------------------------------------ from a sandbox


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, bytes]]:
    """A server by TLS: its port, and the certificate of its authority."""
    files = certificates(tmp_path_factory.mktemp("certificates"), "127.0.0.1", "localhost")
    with serving((files.certificate, files.private_key)) as port:
        yield port, Path(files.authority).read_bytes()


ASKING = """
import os, ssl, socket, urllib.error, urllib.request as u
os.environ.pop("no_proxy")  # which has the loopback: here that is where the servers are

def status(url, **options):
    try: return u.urlopen(url, timeout=20, **options).status
    except urllib.error.HTTPError as error: return error.code

def words(url, **options):
    return u.urlopen(url, timeout=20, **options).read().decode()
"""


@pytest.fixture
def python(make: Make, port: int, secured: tuple[int, bytes]) -> Iterator[Interpreter]:
    """In a sandbox that may ask two servers of this machine."""
    hosts = (f"127.0.0.1:{port}", f"localhost:{secured[0]}")
    sandbox = make(SandboxPolicy(network=hosts), kind="bubblewrap")
    sandbox.write("authority.pem", secured[1])
    with Interpreter(sandbox) as python:
        assert python.run(ASKING).exit_code == 0
        yield python


@pytest.mark.slow
def test_programs_find_the_proxy_by_their_variables(python: Interpreter, port: int) -> None:
    done = python.run(f"words('http://127.0.0.1:{port}/there')")
    assert done.stdout == f"'GET /there {WORDS.decode()}'\n", done.stderr


@pytest.mark.slow
def test_what_is_encrypted_stays_so_to_the_host(
    python: Interpreter, secured: tuple[int, bytes]
) -> None:
    url = f"https://localhost:{secured[0]}/there"
    trusted = "ssl.create_default_context(cafile='authority.pem')"
    assert WORDS.decode() in python.run(f"words({url!r}, context={trusted})").stdout
    assert "CERTIFICATE_VERIFY_FAILED" in python.run(f"words({url!r})").stderr


@pytest.mark.slow
def test_nothing_else_can_be_asked(
    python: Interpreter, port: int, other_port: int, secured: tuple[int, bytes]
) -> None:
    assert python.run(f"status('http://127.0.0.1:{other_port}/')").stdout == "403\n"
    assert python.run(f"status('http://localhost:{port}/')").stdout == "403\n"
    refused = python.run(f"words('https://127.0.0.1:{secured[0]}/')").stderr
    assert "Tunnel connection failed: 403 Forbidden" in refused


@pytest.mark.slow
def test_nothing_can_be_reached_but_by_the_proxy(python: Interpreter, port: int) -> None:
    for address in ("127.0.0.1", "localhost"):
        done = python.run(f"socket.create_connection(({address!r}, {port}), 2)")
        assert done.stderr.splitlines()[-1].startswith("ConnectionRefusedError"), address
    done = python.run("socket.create_connection(('192.0.2.1', 80), 2)")
    assert done.stderr.splitlines()[-1] == "OSError: [Errno 101] Network is unreachable"
    done = python.run("socket.getaddrinfo('example.org', 80)")
    assert "gaierror" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_sandbox_ends_with_its_proxy(make: Make, port: int) -> None:
    sandbox = make(SandboxPolicy(network=(f"127.0.0.1:{port}",)), kind="bubblewrap")
    (stop,) = sandbox._place.release
    folder = stop.__self__.path.parent  # type: ignore[attr-defined]
    assert folder.exists()
    sandbox.close()
    assert not folder.exists()


@pytest.mark.parametrize("kind", ["landlock", "gvisor"])
def test_a_kind_that_cannot_limit_the_network_is_refused(kind: str) -> None:
    policy = SandboxPolicy(network=("pypi.org:443",))
    with pytest.raises(SandboxUnavailable):
        Sandbox(policy, require="process", kind=kind)


def test_it_closes_wherever_its_socket_is_by_then() -> None:
    proxy = Proxy(("example.org:443",))
    proxy.path.unlink()
    closing = threading.Thread(target=proxy.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("93.184.216.34", True),
        ("127.0.0.1", False),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("::127.0.0.1", False),
        ("64:ff9b::7f00:1", False),  # NAT64 of 127.0.0.1
        ("64:ff9b::a9fe:a9fe", False),  # of 169.254.169.254
        ("64:ff9b::5db8:d822", True),
        ("64:ff9b:1::7f00:1", False),
        ("2002:7f00:1::", False),  # 6to4 of 127.0.0.1
        ("2002:c0a8:101::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
    ],
)
def test_an_address_is_public_only_if_what_it_stands_for_is(address: str, expected: bool) -> None:
    assert is_public(address) is expected
