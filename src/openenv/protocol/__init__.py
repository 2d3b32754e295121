"""The wire protocol as values and rules: no await, no clock, no socket.

`client` and `execution` send and receive these messages. This package uses only the models of the
contract.

Read `messages.py` first, which both versions share, then ``v0/`` and ``v1/``. Their files have the
same roles: ``messages.py`` (the frames), ``codec.py`` (to bytes and back), ``connection.py`` (the
order of frames, and the state from which a broken connection is resumed).
"""
