"""What the commands say of a tree whose kind says nothing of its own, and what kinds build on."""
