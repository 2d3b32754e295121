"""Who plays: a function, a model, chance, a script, a person.

`policy_named` makes one of a name, as the command line takes it.
"""
