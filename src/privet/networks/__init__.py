"""Networks that methods build with: relevance, perturbed residual blocks, U-Nets, auto-encoders."""
