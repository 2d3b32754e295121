"""The side of the chess environment that plays the games."""
