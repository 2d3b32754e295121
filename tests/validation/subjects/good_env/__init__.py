"""A small environment in which nothing is wrong: what checks are tried out on."""
