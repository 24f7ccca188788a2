import pytest


@pytest.fixture(autouse=True)
def _repeatable(repeatable):
    """Everything in this folder."""
