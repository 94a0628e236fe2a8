"""The interface between a tree of a release and the steps that count, draw and answer it."""
