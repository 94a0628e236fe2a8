"""What `dptrees verify` checks of a release, one module a kind of check."""
