BLOCKS = {18: [2, 2, 2, 2], 34: [3, 4, 6, 3], 50: [3, 4, 6, 3], 101: [3, 4, 23, 3]}[LAYERS]


def conv(a, b, size, stride=1):
    return nn.Conv2d(a, b, size, stride, size // 2, bias=False)


class Block(nn.Module):
    """Two convolutions of 3x3, or three of which the middle one is; what comes in is added after them."""

    def __init__(self, wide_in, channels, stride):
        super().__init__()
        deep = LAYERS >= 50
        out = 4 * channels if deep else channels
        self.conv1 = conv(wide_in, channels, 1 if deep else 3, 1 if deep else stride)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = conv(channels, channels, 3, stride if deep else 1)
        self.bn2 = nn.BatchNorm2d(channels)
        if deep:
            self.conv3, self.bn3 = conv(channels, out, 1), nn.BatchNorm2d(out)
        self.downsample = None
        if stride > 1 or wide_in != out:
            self.downsample = nn.Sequential(conv(wide_in, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if hasattr(self, "conv3"):
            y = self.bn3(self.conv3(F.relu(y)))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.small = IMAGE <= 64  # then the first convolution is of 3x3, and nothing is pooled
        self.conv1 = conv(3, WIDTH, 3) if self.small else conv(3, WIDTH, 7, 2)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        wide = WIDTH
        for stage, count in enumerate(BLOCKS):
            layers = []
            for i in range(count):
                layers.append(Block(wide, WIDTH << stage, 2 if stage > 0 and i == 0 else 1))
                wide = (WIDTH << stage) * (4 if LAYERS >= 50 else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(wide, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = x if self.small else F.max_pool2d(x, 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def make_model():
    return ResNet()


def start_tensor(weights, name):
    return weights[name]


def wrap_layers(model, wrap):
    for stage in range(4):
        layers = getattr(model, f"layer{stage + 1}")
        for i, block in enumerate(layers):
            layers[i] = wrap(block)
    return model
