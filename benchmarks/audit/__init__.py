"""Audits of the guarantee: exact privacy losses of what is drawn, and bounds from releases alone.

`python -m benchmarks.audit` writes docs/audit.md; tests/audit runs the same in short forms.
"""
