"""Common questions to a table, by this project and by other packages: lines, seconds, errors."""
