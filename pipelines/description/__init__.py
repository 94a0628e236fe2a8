"""The description of a tree's plan: one value, written as JSON, on the terminal and on the page."""
