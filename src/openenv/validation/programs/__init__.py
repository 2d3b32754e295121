"""Standalone programs, which run in another process or inside a subject.

The programs do not import openenv: `confinement_probe.py` runs inside the subject's container, and
`oracle_server.py` serves the functions of a package's oracle.
"""
