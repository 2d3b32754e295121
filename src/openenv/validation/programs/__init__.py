"""Standalone programs, run in a process of a package or inside a subject.

They import nothing of openenv: `confinement_probe.py` runs inside the subject's container, and
`oracle_server.py` serves the functions of a package's oracle.
"""
