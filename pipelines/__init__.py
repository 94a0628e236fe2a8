"""What a person runs: configuration, command line, inputs and outputs, report.

This file imports nothing, so that commands that need no Beam start within a second.
"""

if __name__ == "pipelines":
    from dptrees.old_names import import_by_new_name

    import_by_new_name(__name__)
