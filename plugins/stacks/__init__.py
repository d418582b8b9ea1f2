"""The bundled software stacks."""
