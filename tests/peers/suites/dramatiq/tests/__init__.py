"""A package, as the helpers want it."""
