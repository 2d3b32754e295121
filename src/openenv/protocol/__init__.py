"""The wire protocol as values and rules: no await, no clock, no socket.

Above: `client` and `execution` send and receive what is written here. Below: the models of the
contract.

Read first `messages.py`, which both versions share, then ``v0/`` and ``v1/``, whose files have the
same roles: ``messages.py`` (the frames), ``codec.py`` (to bytes and back), ``connection.py`` (the
order of frames, and what a broken connection is resumed from).
"""
