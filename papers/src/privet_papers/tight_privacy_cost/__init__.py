"""Tight privacy cost of DP-SGD: the closed form, where it holds and where it does not.

The formula itself is `privet.accounting.closed_form`, a claim beside every exact epsilon.
"""

from privet_papers.tight_privacy_cost.counter_example import audit_closed_form

__all__ = ["audit_closed_form"]
