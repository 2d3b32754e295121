"""Programs that run in a sandbox, on the standard library alone."""
