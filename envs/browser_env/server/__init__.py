"""The server side of the browser environment."""
