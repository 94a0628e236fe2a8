"""The folder of a release: its files, its layout, and what a second run finds in it."""
