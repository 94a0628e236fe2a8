"""What the commands say of an ordered domain that is measured by a strategy past trees."""
