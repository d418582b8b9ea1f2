"""Bundled software stacks."""
