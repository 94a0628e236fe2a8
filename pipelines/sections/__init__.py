"""The sections of a configuration that know no kind of tree."""
