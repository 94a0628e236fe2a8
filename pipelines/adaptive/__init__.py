"""Adaptive trees over ordered domains: what a person sees of them."""
