"""What the commands say and read of a series of releases.

The tree of one period is shown by its own kind; windows of periods are put together from the runs'
folders.
"""
