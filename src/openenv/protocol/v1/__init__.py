"""Protocol version 1: many sessions on one connection, which can be resumed after a break."""
