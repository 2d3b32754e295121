"""The server of the good environment."""
