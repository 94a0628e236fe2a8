"""A first configuration of somebody's own, from the names and types of columns alone."""
