"""Published mechanisms, estimates and error formulas, which plans are compared with."""
