"""The tests are a package: diffprivlib installs a `tests` of its own, which would be found first."""
