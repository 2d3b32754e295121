"""Packages to validate, and what serves them from a thread of the test's process."""
