"""The figures of the papers on trees, made again by this project's mechanisms.

python -m benchmarks.reproduction --write docs/reproduction.md
"""
