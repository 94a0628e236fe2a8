"""The mathematics of differentially private counts over trees, on NumPy and Arrow arrays.

Domains, trees, planning, noise, estimation, consistency and the release object. Nothing here
reads a file or the clock, and nothing knows Apache Beam: each module works alone in a notebook.
This file imports nothing, so that the version is known without loading NumPy.

>>> from dptrees.dpcore import __version__
>>> __version__.count(".")
2
"""

__version__ = "0.1.0"
