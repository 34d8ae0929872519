"""The version of everything in the package: plugin, fabric, programs and Python."""

__version__ = "0.1.0"
