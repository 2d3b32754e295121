"""One module per command, with the command's name; heavy imports happen on use."""
