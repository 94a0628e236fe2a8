"""Private keys: the first stage of a release, planned and described."""
