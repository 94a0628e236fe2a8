"""The kinds of trees on the page of a report."""
