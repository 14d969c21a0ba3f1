class Cnn(nn.Module):
    """Per width a convolution, ReLU and max-pool; then two Linear layers."""

    def __init__(self):
        super().__init__()
        channels = [CHANNELS, *WIDTHS]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in zip(channels, WIDTHS))
        side = IMAGE >> len(WIDTHS)
        self.fc1, self.fc2 = nn.Linear(WIDTHS[-1] * side * side, 128), nn.Linear(128, CLASSES)

    def forward(self, x):
        for conv in self.convs:
            x = F.max_pool2d(F.relu(conv(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def make_model():
    return Cnn()


def start_tensor(weights, name):
    """A parameter from `baton train --write-start`: convs.0.weight is conv1.weight."""
    parts = name.split(".")
    return weights[f"conv{int(parts[1]) + 1}.{parts[2]}" if parts[0] == "convs" else name]


def wrap_layers(model, wrap):
    for i, conv in enumerate(model.convs):
        model.convs[i] = wrap(conv)
    return model
