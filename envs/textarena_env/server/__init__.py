"""The side of the TextArena environment that plays the games."""
