"""The severity policies, as data."""
