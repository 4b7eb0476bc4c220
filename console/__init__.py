"""The console: pages, metrics and health of a node or a cluster, in a process of its own, which is a client.

It has no rights but those of who looks, and when it ends nothing else does. It imports `quorate` alone.

The walk of one page: `server` takes the request, `guard` refuses what a browser was tricked into, `logins` says whose
token goes with the cookie, `views` has the client with that token and what it saw last, `pages` makes the page of it.
"""
