"""The links between the workers of all nodes: who is dialled, who is let in, and what is said over them."""
