"""Floor of the core: study."""
