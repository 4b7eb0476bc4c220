"""The pipeline's jobs, each a function of a session; `cli.data` makes commands of them."""
