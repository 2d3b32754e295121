"""The side of the Atari environment that plays the games."""
