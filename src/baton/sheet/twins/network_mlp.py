def make_model():
    """Blocks of Linear + ReLU."""
    return nn.Sequential(*[nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in zip(WIDTHS, WIDTHS[1:])])


def start_name(name):
    """What `baton train --write-start` calls a parameter: 2.0.weight is block2.weight."""
    block, _, kind = name.split(".")
    return f"block{block}.{kind}"


def wrap_layers(model, wrap):
    for i, block in enumerate(model):
        model[i] = wrap(block)
    return model
