"""The diagrams of the documents, each drawn by a module of its own into docs/pictures."""
