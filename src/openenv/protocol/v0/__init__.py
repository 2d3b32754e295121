"""Protocol version 0, which openenv 0.10 speaks: one session per connection."""
