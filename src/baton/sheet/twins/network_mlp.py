def make_model():
    """Blocks of Linear + ReLU."""
    return nn.Sequential(*[nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in zip(WIDTHS, WIDTHS[1:])])


def start_tensor(weights, name):
    """A parameter from `baton train --write-start`: 2.0.weight is block2.weight."""
    block, _, kind = name.split(".")
    return weights[f"block{block}.{kind}"]


def wrap_layers(model, wrap):
    for i, block in enumerate(model):
        model[i] = wrap(block)
    return model
