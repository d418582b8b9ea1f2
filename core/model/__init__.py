"""How cost arises: axes, operations, graphs, meshes, layouts, derived communication, memory and time."""
