"""The side of the FinRL environment that keeps the market and the books."""
