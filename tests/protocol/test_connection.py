"""What may follow what on one connection."""

from __future__ import annotations

import pytest

from openenv.errors import ProtocolError, SessionCapacityError
from openenv.protocol.messages import Request, StateReply
from openenv.protocol.v0.connection import ClientConnection, Phase, ServerConnection

STATE = '{"type":"state","data":{"step_count":1}}'
FULL = '{"type":"error","data":{"message":"full","code":"CAPACITY_REACHED"}}'


def test_a_server_takes_no_request_before_the_session_is_ready() -> None:
    with pytest.raises(ProtocolError, match="opening"):
        ServerConnection().receive('{"type":"state"}')


def test_nothing_follows_close() -> None:
    connection = ServerConnection()
    connection.accept()
    assert connection.receive('{"type":"close"}').type == "close"
    with pytest.raises(ProtocolError, match="closed"):
        connection.receive('{"type":"state"}')


def test_a_refused_connection_is_closed() -> None:
    connection = ServerConnection()
    assert b"CAPACITY_REACHED" in connection.refuse(SessionCapacityError(1, 1))
    with pytest.raises(ProtocolError):
        connection.accept()


def test_answers_belong_to_requests_in_their_order() -> None:
    client = ClientConnection()
    first, _ = client.request(Request("state"))
    second, _ = client.request(Request("state"))
    assert client.receive(STATE) == [(first, StateReply({"step_count": 1}))]
    assert client.receive(STATE) == [(second, StateReply({"step_count": 1}))]


def test_an_answer_that_nobody_asked_for_belongs_to_nobody() -> None:
    [(owner, _)] = ClientConnection().receive(STATE)
    assert owner is None


def test_a_fatal_error_closes_the_clients_end() -> None:
    client = ClientConnection()
    client.request(Request("state"))
    client.receive(FULL)
    assert client.phase is Phase.CLOSED
    with pytest.raises(ProtocolError):
        client.request(Request("state"))
