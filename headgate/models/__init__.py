"""Models over landed tables: features without a future, training, and the registry of models."""
