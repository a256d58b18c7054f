"""What is multiplied: dtypes, layouts, data, references and bounds."""
