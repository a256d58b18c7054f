"""Shows and does neither measure nor explain."""
