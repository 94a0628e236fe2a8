"""The configuration of a release as a whole, and the registry of kinds of trees."""
