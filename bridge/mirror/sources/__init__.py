"""Where rows come from: one source for each backend."""
