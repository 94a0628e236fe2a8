"""The kinds of trees in a configuration: their sections, and their lines on the terminal."""
