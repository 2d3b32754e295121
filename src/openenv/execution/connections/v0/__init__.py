"""Connections of protocol version 0: one session each."""
