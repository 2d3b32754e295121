"""The side of the Wordle environment that keeps the secret."""
