"""One log on several nodes: who leads, who has what, who belongs to the cluster."""
