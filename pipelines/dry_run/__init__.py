"""What ``dptrees check`` reports about all places but the rows."""
