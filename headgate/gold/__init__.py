"""Tables that are derived from landed ones, as the pipeline declares them."""
