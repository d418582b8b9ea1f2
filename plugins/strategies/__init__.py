"""Bundled parallel strategies: each states layouts, none writes a collective."""
