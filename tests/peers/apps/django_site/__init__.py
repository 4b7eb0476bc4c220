"""A Django site."""
