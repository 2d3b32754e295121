"""The server side of the OpenSpiel environment."""
