"""The privacy budget and what it pays for: sensitivities, composition, conversions."""
