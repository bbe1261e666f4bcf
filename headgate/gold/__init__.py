"""Gold tables: derived from the landed tables, as the pipeline declares them."""
