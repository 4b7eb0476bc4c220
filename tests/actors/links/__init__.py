"""The links."""
