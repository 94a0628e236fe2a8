"""Trees too large to list: their section of a configuration, their plan in words, their page."""
