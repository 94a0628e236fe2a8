"""The Python API behind `import dptrees`, over the same steps as the command."""
