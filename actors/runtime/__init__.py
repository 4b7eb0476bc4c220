"""What actors run on."""
