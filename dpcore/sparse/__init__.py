"""Kind sparse: heavy nodes of codes, labels and paths that no one lists."""
