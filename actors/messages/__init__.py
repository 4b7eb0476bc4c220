"""What actors say to each other: one module a conversation, its table in its docstring."""
