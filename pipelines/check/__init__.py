"""Checks before a release (`dptrees check`) and of a release (`dptrees verify`)."""
