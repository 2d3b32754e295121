"""A connection's side of sessions: one session in version 0, many in version 1, or an agent's.

`conversation` speaks version 0 and `multiplex` version 1; neither knows a web framework, so that
the in-process transport of the client speaks to the same code as a socket.
"""
