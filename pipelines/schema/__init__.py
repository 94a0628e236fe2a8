"""The JSON Schema of a configuration, for editors, made from the sections that read it."""
