"""Pages and summaries of releases, and the report of a plan."""
