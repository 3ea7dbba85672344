"""A run as it happens: what is started when, what the terminal shows, how it is interrupted."""
