"""The side of the 2048 environment that keeps the board."""
