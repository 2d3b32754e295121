"""The server side of the Atari environment."""
