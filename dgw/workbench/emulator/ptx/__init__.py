"""PTX text to instructions: statements, declarations, scopes, source lines and inlined calls."""
