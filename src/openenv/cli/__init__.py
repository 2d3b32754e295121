"""The command line: `openenv`, or `python -m openenv.cli`.

``__main__.py`` holds the table of commands; read it first. Each command is a module of
``commands`` and is imported when called. ``_groups`` and ``_failures`` define how commands parse
their arguments and how they exit, ``_console`` how they print. The command line may import every
other package; no other package imports it.
"""

from openenv._internal.shadowing import keep_libraries

keep_libraries()  # before any other import, since `python -m` puts this directory first
