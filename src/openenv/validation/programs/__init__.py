"""Programs that run alone: in a process of a package's own, or inside a subject."""
