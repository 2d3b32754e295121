"""The side of the browser environment that runs Chromium."""
