"""One folder a paper; the methods do not import each other."""
