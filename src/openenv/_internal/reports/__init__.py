"""What all reports for people have in common: how pages are made, and how plots are drawn."""
