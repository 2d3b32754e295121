"""Who is connected, and where their environment's code runs. No web framework in here."""
