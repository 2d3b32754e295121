"""The server side of the FinRL environment."""
