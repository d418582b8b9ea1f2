"""Bundled architectures: how each `model_type` of a Hugging Face `config.json` becomes a graph."""
