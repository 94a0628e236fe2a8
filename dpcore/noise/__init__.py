"""Keyed streams of random bits and exact integer laws: noise that is drawn once.

Floor 1: imports from floor 0 and dpcore.arrays. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "exponential_bounds": ("Bounds", "exp_bounds"),
    "laws": ("DiscreteGaussian", "DiscreteLaplace", "NoiseLaw", "SAMPLER_VERSION", "exact_scale"),
    "randomness": (
        "Bits",
        "KeyedBlocks",
        "NONCE_BYTES",
        "RandomStream",
        "ReleaseKey",
        "draw_nonce",
        "key_id_from_check",
        "public_stream",
    ),
    "source": (
        "KeyedChoices",
        "LARGEST_DIVIDED",
        "LargeSumError",
        "MAX_COUNT",
        "NoiseSource",
        "add_noise",
        "check_held",
        "combine_digests",
        "counts_digest",
    ),
    "truncated_laplace": ("TruncatedLaplace", "truncated_laplace"),
}
