"""A release as a step of a pipeline in Beam YAML, and for pipelines in other languages."""
