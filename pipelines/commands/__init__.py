"""What each command takes, one file a command; what it does lies elsewhere, imported when run."""
