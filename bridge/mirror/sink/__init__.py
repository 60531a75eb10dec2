"""Where rows go: staged, committed by a manifest, renamed into place."""
