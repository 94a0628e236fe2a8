"""The interface of every tree of a release for the packages above."""
