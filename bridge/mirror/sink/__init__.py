"""Where rows go: a batch is one commit of a Delta table, with the offsets that it covers."""
