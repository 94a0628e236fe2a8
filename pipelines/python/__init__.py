"""The Python door: what `import dptrees` offers, over the same steps as the command."""
