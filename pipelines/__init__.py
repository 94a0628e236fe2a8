"""What a person runs: configuration, command line, inputs and outputs, report.

This file imports nothing, so that commands that need no Beam start within a second.
"""
