"""How a command ends when it does not end well: exit codes, signals, and their messages."""
