"""Policies: functions, models, chance, scripts, people.

`policy_named` creates a policy from a name, as on the command line. Read ``base.py`` first: the
interface to which every policy is adapted.
"""
