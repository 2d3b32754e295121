"""Protocol version 1: many sessions on a connection that may break."""
