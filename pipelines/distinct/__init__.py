"""Numbers of different values: their section, and how they are shown."""
