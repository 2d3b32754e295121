"""One module for each command, of the same name; what is heavy is imported when it runs."""
