"""Connections of protocol version 0, with a single session each."""
