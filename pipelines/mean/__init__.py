"""A mean that is measured alone: how it is shown."""
