"""``dptrees release --dry-run``: all checks that a run makes before it spends budget."""
