"""The built-in severity policies, as JSON files."""
