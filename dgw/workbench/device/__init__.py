"""GPU plumbing of the child process."""
