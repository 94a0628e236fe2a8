"""Tables to record batches: one module a kind, and `read`, which spreads them over workers.

This file imports nothing, as that of transforms.
"""
