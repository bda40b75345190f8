"""What can be known about a policy without running it: exploration of its machine, and the laws checked on the way."""
