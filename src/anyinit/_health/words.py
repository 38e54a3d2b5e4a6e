"""What each finding means, in one sentence, and what helps."""

from __future__ import annotations

RANDOM = "Draw the weight at random."
WORDS: dict[str, tuple[str, str]] = {
    "not finite": ("It reaches every output, and leaves no gradient.", "Lower the scales, or initialize anew."),
    "uninitialized": ("Memory that nobody wrote to looks like this.", "Initialize the tensor before use."),
    "gradient not finite": (
        "The first step destroys the weight.",
        "Look for roots, logarithms and divisions at zero; lower the scales.",
    ),
    "zero weights": (
        "Its output and the gradient of what stands before it are zero, so nothing in front learns.",
        RANDOM,
    ),
    "identical units": (
        "Units that start as copies of each other get equal gradients and stay copies.",
        RANDOM,
    ),
    "identical rows": ("Only the layer behind it tells its units apart.", RANDOM),
    "identical columns": ("The layer sees nothing but the sum of its inputs.", RANDOM),
    "clones": (
        "Layers or towers that were copied start, and with equal inputs stay, the same.",
        "Give each its own draw.",
    ),
    "outliers": ("A few huge entries carry the level, the rest learn nothing.", RANDOM),
    "vanishing signal": (
        "Each layer multiplies the level by the same factor, so depth drives it away.",
        "Use a scale that keeps the level, or a normalization.",
    ),
    "exploding signal": (
        "Each layer multiplies the level by the same factor, so depth drives it away.",
        "Use a scale that keeps the level, or a normalization.",
    ),
    "scale": ("The weight's scale does not fit its fan.", "Draw it with variance near 1 / fan_in."),
    "inputs forgotten": (
        "Different inputs give the same output: biases or means carry all of the level, or nothing does.",
        "Lower the biases, raise the weights, or draw zeros at random.",
    ),
    "tokens alike": (
        "Attention or pooling averages them away.",
        "Scale q.k logits to unit level; keep the skip path.",
    ),
    "attention saturated": (
        "Logits are so large that each query sees one key, and softmax has no slope there.",
        "Scale queries and keys so that q.k has unit level.",
    ),
    "dead units": ("A unit that never fires has no gradient.", "Raise the biases or center the inputs."),
    "always on": ("Where no unit ever switches, the layer is linear.", "Lower the biases or center the inputs."),
    "saturated": ("A flat activation passes no gradient.", "Lower the scale or the bias of the layer."),
    "no gradient": (
        "Nothing that this weight does reaches the output.",
        "Draw the weights behind it at random, or connect it.",
    ),
    "vanishing gradient": (
        "Each layer multiplies the gradient by the same factor on the way back.",
        "Use orthogonal draws at the edge of stability, a skip path, or a normalization.",
    ),
    "exploding gradient": (
        "Each layer multiplies the gradient by the same factor on the way back.",
        "Use orthogonal draws at the edge of stability, a skip path, or a normalization.",
    ),
    "step too large": ("One step replaces what the weight was.", "Lower the learning rate or raise the scale."),
    "step too small": (
        "Below the rounding of float32 nothing changes.",
        "Raise the learning rate or lower the scale.",
    ),
    "first loss": (
        "The logits are large and know nothing, so training first unlearns them.",
        "Lower the scale of the output layer.",
    ),
}
