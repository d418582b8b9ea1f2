"""Floor of the core: records."""
