"""Pages and plots that all reports share."""
