"""The bundled accelerators, hosts, links and node forms, and the kernel formulas that price work on them."""
