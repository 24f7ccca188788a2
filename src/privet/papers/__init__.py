"""The five papers to the letter, one folder each.

Published algorithm, its baselines, its experiment, its figures and what breaks its claim. Papers
use the library as an outsider would, and nothing in the library imports them. A published epsilon
is a claim; what is proved instead stands beside it.
"""
