"""Who brings what: the hook specifications and the host that loads plugins.

Floor: host. May use model, records, algebra, errors; nothing here prices or prints anything.
"""
