"""The exact parameter of a law of noise, as a manifest states it."""

from __future__ import annotations

from dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw


def exact_scale(law: NoiseLaw) -> dict[str, str]:
    """The exact parameter of a law of noise."""
    if isinstance(law, DiscreteLaplace):
        return {"law": "discrete Laplace", "scale": str(law.scale)}
    if isinstance(law, DiscreteGaussian):
        return {"law": "discrete Gaussian", "sigma_squared": str(law.sigma_squared)}
    raise TypeError(f"law: {type(law).__name__} gives no guarantee")
