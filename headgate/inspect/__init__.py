"""What pipelines did and how they are doing, as values for the command line and the page."""
