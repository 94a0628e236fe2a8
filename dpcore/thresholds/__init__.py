"""Counts between thresholds (Ghazi et al.): modules named as in `uniform`.

Floor 3: imports from floors 0 to 2. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "calibration": ("calibrate",),
    "errors": ("ThresholdErrors",),
    "forest": ("ThresholdForest", "ThresholdIntervals", "TreeThresholds", "threshold_intervals"),
    "plan": ("ThresholdPlan",),
}
