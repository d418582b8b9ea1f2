"""What a person sees: command line, tables, pages. May use every floor of the core below."""
