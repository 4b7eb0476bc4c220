"""The way in: clients, which node does a request, virtual queues."""
