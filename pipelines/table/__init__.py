"""Wide tables: their section of a configuration, their plan in words, their page."""
