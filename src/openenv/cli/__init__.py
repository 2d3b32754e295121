"""The command line: `openenv`, or `python -m openenv.cli`.

``__main__.py`` is the table of commands (read it first); each command is a module of ``commands``,
imported when called. ``_groups`` and ``_failures`` define how commands parse and end, ``_console``
how they print. Below: every other package. Nothing imports this package.
"""

from openenv._internal.shadowing import keep_libraries

keep_libraries()  # before any other import, since `python -m` puts this directory first
