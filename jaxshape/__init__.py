"""Trace, convert and run ONNX models with JAX."""

__version__ = "0.1.0"
