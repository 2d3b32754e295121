"""The server side of echo_env."""
