"""Charts as SVG that this program draws itself: they need no script, no library and no network."""
