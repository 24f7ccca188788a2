"""Tight privacy cost of DP-SGD: the closed form, where it holds and where it does not.

The formula itself is `privet.loss.closed_form`, a claim beside every exact epsilon.
"""

from privet.papers.tight_privacy_cost.audit import audit_published

__all__ = ["audit_published"]
