"""Results to look at: the report page, the index over many results, figures for papers."""
