"""The side of the coding environment that runs code."""
