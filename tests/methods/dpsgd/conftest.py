import pytest
import torch


@pytest.fixture(autouse=True)
def _repeatable():
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
