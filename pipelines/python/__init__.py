"""The Python API, which `import dptrees` offers."""
