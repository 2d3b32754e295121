"""Transports of a client's frames: a WebSocket, an ASGI application, or memory."""
