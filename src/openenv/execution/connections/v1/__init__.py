"""Connections of protocol version 1: many sessions each, which survive a broken socket."""
