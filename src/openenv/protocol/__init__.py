"""The wire protocol as values and rules: no await, no clock, no socket.

Above: `client` and `execution` send and receive what is written here. Below: the models of the
contract.

Read first `messages.py` (every frame of both versions), then `codecs.py` and `connection.py`
(version 0), and `v1.py` (version 1, with the client's end of a connection of many sessions);
`resend_buffer.py` is what a broken connection is resumed from.
"""
