"""Policies: functions, models, chance, scripts, people.

`policy_named` makes one of a name, as the command line takes it.
"""
