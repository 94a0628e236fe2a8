"""Answers as they are shown: figures with the digits that their errors deserve, tables, CSV."""
