"""Formulas and mechanisms of the papers that no release uses: what the reproductions compare with.

Those that releases use are in `dpcore.papers`.
"""
