"""The interface of every tree of a release for the packages above.

Floor 3: imports from floors 0 to 2. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "answer_errors": ("AnswerErrors", "LeafRun", "SumBounds", "SumError", "merged_runs"),
    "column_question": ("ColumnQuestion",),
    "entry": ("budget_entry", "column_policies"),
    "intervals": (
        "Differences",
        "Ends",
        "IntervalRule",
        "Intervals",
        "SlopedIntervals",
        "difference_ends",
    ),
    "leaf_counts": ("BUFFERED_ROWS", "ChunkCounts", "DenseCounter", "merged_chunk", "pack_dense"),
    "mechanism": ("ChunkLayout", "Mechanism", "ReportedErrors"),
    "node_counts": ("NodeCounts",),
    "node_keys": ("text_prefixes",),
    "node_sum": ("NamedRun", "check_apart", "sum_label"),
    "parts": ("ChunkAnswer",),
    "place": (
        "Counter",
        "Counts",
        "Drawn",
        "Gathered",
        "Increments",
        "Matched",
        "Part",
        "Partial",
        "Place",
        "ReleasedPart",
        "RowIncrements",
    ),
    "question": ("PublicTable", "Question", "SeriesRun"),
    "released": ("Answer", "ReadPart", "Released", "Total", "in_natural_order", "named_level"),
    "released_tree": ("ReleasedTree",),
    "roles": ("TreeColumns", "TreeCounting", "TreePrivacy", "TreeRounds", "TreeTables", "UnitRows"),
    "root_messages": (
        "SentRoots",
        "pack_measured",
        "pack_roots",
        "pack_solutions",
        "unpack_measured",
        "unpack_solutions",
    ),
    "statistics": ("BlockedValues", "Statistic", "StatisticKind", "half_width"),
    "slot_counts": ("MOST_SLOTS", "SlotCounter", "Slots"),
    "tables": (
        "CDF",
        "ERROR_COLUMNS",
        "NODES",
        "NODES_SCHEMA",
        "QUANTILES",
        "number_column",
        "tree_and_key",
    ),
    "tree_question": ("M", "TreeQuestion"),
    "unit_choice": ("ONE_PLACE", "ReleasedChoice", "UnitChoice"),
    "workload": ("Noise", "ReleaseTerms", "Share", "Way", "Workload"),
}
