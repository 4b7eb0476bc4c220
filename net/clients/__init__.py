"""What one client has: its connection, on TCP or UDP."""
