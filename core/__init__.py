"""The core of slipstick: the law, the host, the pipeline. It knows no plugin."""
