"""One question a module: a trace in, a DataFrame out."""
