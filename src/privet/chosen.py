"""Numbers that were chosen by trying, in one place, each with what it was tried on.

Whoever reports an accuracy on records that also helped to choose a setting reports too much, and
the guarantee of such a model leaves out what the choice revealed. So what can be chosen on other
data is: `python -m benchmarks.choose_settings` tries every number under *re-chosen* below on drawn
glyphs, scikit-learn's digits and a generated table, and reads no data set that our pages report.
The numbers under *older* were found while the library was written, with the last 10,000 training
records of MNIST at hand, and have not been chosen again; docs/guide/settings.md says what that
touches.
"""

# Re-chosen: one-shot moments (privet.methods.adaptive_laplace)

MOMENTS_CONSTANT = 0.3
"""The constant feature that carries class sizes."""
MOMENTS_SQUARES = 0.2
"""The weight of the squares beside the class sums."""
MOMENTS_SHARE = 0.4
"""The part of the budget that the first release gets."""
MOMENTS_PROJECTED_SHARE = 0.9
"""The same when the second moment is taken in the span of the class means."""
MOMENTS_RIDGE = 0.4
"""Times sqrt(d) times the noise of the second moment."""
MOMENTS_EXPONENT = 0.25
"""Of relevance, in the shape of the noise."""

# Re-chosen: columns of the stroke bases in front of moments

STROKE_COLUMNS = 200
"""Leading columns of each stroke basis."""
STROKE_COLUMNS_PURE = 50
"""The same under pure epsilon."""

# Re-chosen: stacks of auto-encoders (privet.methods.autoencoder)

STACK_LAYERS_SHARE = 0.25
"""The part of the budget for all layers together when an output layer follows."""
STACK_OUTPUT_RIDGE = 0.5
"""Of the output layer, in units of the noise's largest eigenvalue."""
LAYER_RIDGE = 0.3
"""Of a layer's decoder, in the same units."""
LAYER_WHITENING = 0.8
"""The power of a unit's variance that is divided out."""
LAYER_LOOSENESS = 0.1
"""radius^2 over the mean square of what comes in."""

# Re-chosen: linear DP-SGD (privet.methods.dpsgd)

LINEAR_STEPS = 1.2
"""Steps are this times (n mu)^.45; the power is older."""
LINEAR_RATE = 0.5
"""The learning rate is this times n mu over the number of steps."""
LINEAR_BOUND = 0.1
"""The clipping bound."""
LINEAR_CENTRE = 0.05
"""The part of the budget for the mean of the rows, and for the measure of confidence."""
MOMENTUM = 0.9
"""Of every descent."""

# Older; measured, not tried: generated tables give it (benchmarks.confidence)

CONFIDENCE_PRIOR = (0.6, 0.7)
"""Mean and spread of the log temperature that linear DP-SGD needs: two generators of tables gave
.45 and .80, with spreads of .75 and .62."""

# The first two of these are tried by the script too, but it was not run to the end on them

SQUARES_RATE = 1.0
"""The learning rate of linear DP-SGD on squared errors, over the clipping bound: descent with
momentum .9 is stable below 3.8 / lambda, and rows of a box have lambda about 1/3 or less. Of 1, 3,
10 and 30 it was also best on made-up tables and scikit-learn's diabetes."""

BASIS_WHITENING = 0.75
"""The power of the variation within a glyph that is divided out."""
BASIS_RIDGE = 0.1
"""Of that variation, in units of its mean."""
PROJECTED_COLUMNS = 500
"""Columns of a random projection of scattering coefficients."""
PROJECTED_COLUMNS_PURE = 100
"""The same under pure epsilon."""
STROKE_NET_WIDTH, STROKE_NET_STEPS = 32, 800
"""The network taught on drawn strokes. The generator of strokes is older too (strokes.py)."""
NETWORK_BATCH, NETWORK_EPOCHS, NETWORK_EPOCHS_PER_EPSILON, NETWORK_RATE = 8.0, 8.0, 2.0, 1.0
"""DP-SGD of networks: batches of this many sqrt(n), epochs, more for each epsilon, and rate."""
