"""The version, in a file of its own: the lowest floor, so that every other one may print it."""

__version__ = "0.1.0"
