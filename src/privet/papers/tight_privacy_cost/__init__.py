"""Tight privacy cost of DP-SGD: the closed form, where it holds and where it does not."""
