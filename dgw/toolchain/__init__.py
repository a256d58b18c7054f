"""From source to machine code and what can be said of it without a GPU."""
