"""Policies: functions, models, chance, scripts, people.

`policy_named` makes a policy from a name, as the command line takes it. Read ``base.py`` first: the
contract that every policy is brought to.
"""
