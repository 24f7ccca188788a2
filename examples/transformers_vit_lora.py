"""A ViT trained on public digits learns private ones by adapters of rank 4 (peft), privately.

python examples/transformers_vit_lora.py
"""

import torch
from peft import LoraConfig, get_peft_model
from torch.nn.functional import cross_entropy
from transformers import ViTConfig, ViTForImageClassification

from privet import data, dpsgd, noise

digits = data.load("digits")


def pictures(rows, labels, low):
    """The five digits from `low` on, as pictures, numbered from 0."""
    kept = (labels >= low) & (labels < low + 5)
    x = torch.from_numpy(rows[kept].copy()).float().view(-1, 1, 8, 8)
    return x, torch.from_numpy(labels[kept] - low)


torch.manual_seed(0)
config = ViTConfig(
    hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=96,
    image_size=8, patch_size=2, num_channels=1, num_labels=5,
)  # fmt: skip
model = ViTForImageClassification(config)
x, y = pictures(digits.train_rows(), digits.y_train, low=0)  # 0 to 4 are public: no promise needed
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for _ in range(150):
    some = torch.randint(len(x), (128,))
    loss = cross_entropy(model(pixel_values=x[some]).logits, y[some])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], modules_to_save=["classifier"])
adapted = get_peft_model(model, lora)
x, y = pictures(digits.train_rows(), digits.y_train, low=5)  # 5 to 9 are private
optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=1e-2)
schedule = dpsgd.Schedule.for_budget(epsilon=8.0, delta=1e-5, steps=60, sample_rate=0.3)


def losses(model, batch):
    """One loss a row."""
    return cross_entropy(model(pixel_values=batch.x).logits, batch.y, reduction="none")


with dpsgd.private(
    adapted, optimizer, (x, y), schedule, losses=losses, delta=1e-5, rng=noise.seeded(0)
) as run:
    for _ in run:
        pass

adapted.eval()
x, y = pictures(digits.test_rows(), digits.y_test, low=5)
with torch.no_grad():
    right = adapted(pixel_values=x).logits.argmax(1) == y
trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
print(f"test accuracy {right.double().mean():.1%} with {trained} trained numbers (a guess: 20%)")
print(run.guarantee)
