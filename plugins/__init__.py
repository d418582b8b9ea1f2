"""The bundled plugins: one file, one idea. Each is declared as an entry point, as a third party's is."""
