"""Signatures of releases, and the checks of a manifest and its tables."""
