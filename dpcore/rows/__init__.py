"""From Arrow columns to numbers: lookups, keys of a group-by, bounded values, policies.

Floor 1: imports from floor 0 and dpcore.arrays. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "code_blocks": ("CodeBlocks", "CodeTwice"),
    "column": (
        "AnyArray",
        "BLOCK",
        "UTC_NAMES",
        "as_int64",
        "decimal_values",
        "fixed_width_values",
        "is_text",
        "is_utc",
        "large_texts",
        "map_chunks",
        "missing_rows",
        "null_rows",
        "plain_values",
        "readable_texts",
        "value_type",
    ),
    "key_table": ("INTEGER", "KeyTable", "MOST_KEYS", "TEXT", "check_key_type", "product_table"),
    "keys": (
        "KeyList",
        "Keys",
        "MAX_KEYS",
        "OTHER",
        "check_names",
        "find_named",
        "keys_from_spec",
        "listed_values",
        "needed_type",
        "value_list",
    ),
    "lookup": ("IntegerIndex", "TextIndex"),
    "number_texts": ("ABSENT", "read_numbers", "text_buffers", "write_numbers"),
    "packing": ("narrowed", "pack", "pack_many", "unpack", "unpack_many"),
    "parted": ("PartedIntegers",),
    "policies": (
        "DROPPED",
        "MAP_VERSION",
        "check_column",
        "check_policy",
        "check_version",
        "is_integer",
        "made",
    ),
    "row_outcomes": ("FRACTION", "MISSING", "missing_flags", "RowOutcome"),
    "sums": ("LARGEST_BOUND", "MeasureColumn", "measure_from_spec"),
    "table_keys": ("TableKeys", "UnlistedKeys"),
    "time_line": ("TimeLine", "time_line"),
    "value_list": ("ValueList",),
    "whole_numbers": (
        "MOST_WHOLE",
        *("floored_decimals", "fractions", "has_fractions", "is_number"),
        "whole_numbers",
    ),
}
