"""Kind ordered: domains of values, the planner, CDFs and quantiles.

Floor 5: imports from floors 0 to 4. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "candidates": ("candidates",),
    "domain": ("OrderedDomain",),
    "errors": ("errors_of",),
    "make": ("DOMAIN_KINDS", "DateDomain", "OrderedDomain", "make_domain"),
    "planner": ("budget_for_target", "plan_tree", "predicted_cdf_rmse", "predicted_error"),
    "quantiles": ("Ends", "difference_ends"),
    "question": ("CdfQuestion", "OrderedQuestion", "ordered_question_from_spec"),
    "released": ("CdfAnswers", "ReleasedCdf"),
    "workload": ("CdfWorkload", "OrderedWorkload"),
}
