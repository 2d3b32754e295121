"""The command line: `openenv`, or `python -m openenv.cli`."""

from openenv._internal.shadowing import keep_libraries

keep_libraries()  # before anything else is imported: `python -m` puts this directory first
