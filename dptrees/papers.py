"""The papers that dptrees implements, each in a module that is read beside it.

    from dptrees.papers import honaker, rameshwar

Their definitions, algorithms and formulas have the papers' numbers and notation, and say what is
corrected and what releases use in their place.
"""

from __future__ import annotations

import sys

from dptrees.dpcore.papers import (
    ghazi,
    ghazi_bounds,
    holland,
    honaker,
    rameshwar,
    rameshwar_optima,
)

__all__ = ["ghazi", "ghazi_bounds", "holland", "honaker", "rameshwar", "rameshwar_optima"]

# For ``import dptrees.papers.honaker``: the same modules, not copies of them.
sys.modules.update({f"{__name__}.{name}": globals()[name] for name in __all__})
