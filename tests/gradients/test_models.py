"""A part of `python -m benchmarks.models`: models as people have them pass, or say what to do."""

from __future__ import annotations

import pytest

from benchmarks.models import Outcome, cases, run

PASS = """
torch/views torch/returns_more torch/embedding_subclass torch/positions_for_all torch/bag_offsets
torch/lstm_batch_second torch/gru_packed torch/tied_head torch/attention_bias_kv torch/experts
torch/encoder_batch_second torch/relative_bias torch/layer_drop torch/rows_flattened torch/caches
torch/group_norm_transposed torch/vit torch/two_towers torch/frozen_scale torch/parameter_list
transformers/opt/language transformers/mixtral/language transformers/biogpt/language
transformers/t5/translate transformers/xlnet/classify transformers/swinv2/pictures
transformers/clip/pairs transformers/yolos/boxes transformers/wav2vec2/sound
transformers/gpt2/lora
""".split()  # noqa: SIM905
REFUSED = """
torch/mlp_batch_norm torch/embedding_max_norm torch/spectral_norm torch/lazy
torch/instance_norm_running
""".split()  # noqa: SIM905

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of transformers, and of what goes by torch.func
]


def outcome_of(name: str) -> Outcome:
    (case,) = [case for case in cases() if case.name == name]
    return run(case)


@pytest.mark.parametrize("name", PASS)
def test_a_model_passes_with_gradients_of_a_loop_over_examples(name: str) -> None:
    found = outcome_of(name)
    assert found.outcome == "pass", found


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_in_one_line_what_helps(name: str) -> None:
    found = outcome_of(name)
    assert found.outcome == "refused" and found.advice == "pass", found


def test_there_are_many_models() -> None:
    names = [case.name for case in cases()]
    assert len(names) >= 150 and len(set(names)) == len(names)
