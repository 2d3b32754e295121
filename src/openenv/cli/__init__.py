"""The command line: `openenv`, or `python -m openenv.cli`."""
