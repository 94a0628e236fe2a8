"""The whole configuration of a release, with the registry of kinds."""
