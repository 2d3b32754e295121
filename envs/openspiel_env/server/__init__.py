"""The side of the OpenSpiel environment that plays the games."""
