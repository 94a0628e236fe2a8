"""Looking at the rows of a configuration, for who has them: nothing of it is private."""
