"""The server side of the chess environment."""
