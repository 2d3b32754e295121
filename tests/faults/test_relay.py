"""The relay that other tests rely on: away, it is refused and stays where it was."""

from __future__ import annotations

import errno
import socket

import pytest
from support.raw import address
from support.relay import Relay


def test_a_relay_that_refuses_keeps_its_port_and_takes_connections_there_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        relay = Relay(f"http://127.0.0.1:{server.getsockname()[1]}")
        try:
            relay.refuse()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address(relay.url))
            with pytest.raises(OSError) as taken:
                socket.create_server(address(relay.url))
            assert taken.value.errno == errno.EADDRINUSE
            relay.accept_again()
            socket.create_connection(address(relay.url)).close()
        finally:
            relay.close()
    with socket.create_server(address(relay.url)):
        pass  # a closed relay's port is free
