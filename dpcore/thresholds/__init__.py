"""Counts between thresholds (Ghazi et al.): the same nouns as `uniform`.

Floor 3: imports from floors 0 to 2. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "calibration": ("calibrate",),
    "errors": ("ThresholdErrors",),
    "forest": ("ThresholdForest", "ThresholdIntervals", "TreeThresholds", "threshold_intervals"),
    "plan": ("ThresholdPlan",),
}
