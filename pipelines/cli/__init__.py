"""The command line: its parsers, and the function that each command calls."""
