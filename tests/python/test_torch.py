"""Modules of PyTorch become models that train as PyTorch does."""

import numpy
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import baton  # noqa: E402

steps = 10


def torch_losses(module, inputs, targets, rows, loss, rate):
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    losses = []
    module.train()
    for batch in rows:
        optimizer.zero_grad()
        given = loss(module(torch.from_numpy(inputs[batch])), torch.from_numpy(targets[batch]))
        given.backward()
        optimizer.step()
        losses.append(given.item())
    return numpy.array(losses)


def agree(module, inputs, targets, loss, rate=0.1, batch=8, **settings):
    made = baton.from_torch(module, torch.from_numpy(inputs[:2]))
    run = baton.train(made, data=(inputs, targets), steps=steps, warmup=0, batch=batch, lr=rate, **settings)
    rows = [run.samples(step) for step in range(steps)]
    theirs = torch_losses(module, inputs, targets, rows, loss, rate)
    assert numpy.abs(run.losses - theirs).max() < 1e-5
    assert abs(theirs[-1] - theirs[0]) > 1e-4
    return made


def mean_squares(given, wanted):
    return F.mse_loss(given, wanted)


def entropy_of_positions(given, wanted):
    return F.cross_entropy(given.flatten(0, 1), wanted.flatten().long())


def entropy(given, wanted):
    return F.cross_entropy(given, wanted.long())


def test_an_mlp_trains_as_in_pytorch():
    draw = numpy.random.default_rng(1)
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.LayerNorm(40), nn.Linear(40, 24), nn.GELU(), nn.Linear(24, 5, bias=False))
    made = agree(module, draw.normal(size=(80, 12)).astype("f4"), draw.normal(size=(80, 5)).astype("f4"), mean_squares)
    assert made.parameter_count == sum(one.numel() for one in module.parameters())
    assert set(made.weights) == set(module.state_dict())


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(3 * dim, dim)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


@pytest.mark.parametrize("strategy", ["ddp", "layers", "tensor"])
def test_a_split_module_trains_as_in_pytorch(strategy):
    draw = numpy.random.default_rng(2)
    torch.manual_seed(2)
    module = nn.Sequential(Residual(16), Residual(16), Residual(16))
    inputs, targets = (draw.normal(size=(80, 16)).astype("f4") for _ in range(2))
    agree(module, inputs, targets, mean_squares, devices="cpu:2", strategy=strategy)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.conv3 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(16, 7)

    def forward(self, x):
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        x = F.relu(x + self.conv2(x))
        x = F.relu(self.conv3(x))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class AveragedCnn(Cnn):
    def forward(self, x):
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        return self.head(F.relu(self.conv3(x)).mean((2, 3)))


@pytest.mark.parametrize("kind", [Cnn, AveragedCnn])
def test_a_cnn_trains_as_in_pytorch(kind):
    draw = numpy.random.default_rng(3)
    torch.manual_seed(3)
    agree(kind(), draw.normal(size=(48, 3, 12, 12)).astype("f4"), draw.integers(0, 7, size=48).astype("i4"), entropy)


class Encoder(nn.Module):
    """Of PyTorch's own layers, causal or not."""

    def __init__(self, norm_first, causal):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(20, 16), nn.Embedding(6, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0, activation="gelu", batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 20)
        self.causal = causal
        self.register_buffer("mask", torch.full((6, 6), float("-inf")).triu(1))
        self.register_buffer("places", torch.arange(6))

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(self.places)
        return self.head(self.encoder(x, mask=self.mask) if self.causal else self.encoder(x))


class Attention(nn.Module):
    """Written by hand, as many are."""

    def __init__(self, dim, heads, context):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.heads = heads
        self.register_buffer("mask", torch.tril(torch.ones(context, context)).view(1, 1, context, context))

    def forward(self, x):
        samples, positions, features = x.size()
        q, k, v = self.c_attn(x).split(features, dim=2)
        q, k, v = (one.view(samples, positions, self.heads, features // self.heads).transpose(1, 2) for one in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / (features // self.heads) ** 0.5)
        scores = F.softmax(scores.masked_fill(self.mask[:, :, :positions, :positions] == 0, float("-inf")), dim=-1)
        return self.c_proj((scores @ v).transpose(1, 2).contiguous().view(samples, positions, features))


class Layer(nn.Module):
    def __init__(self, dim, heads, context):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(dim), Attention(dim, heads, context), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(20, 16), nn.Embedding(6, 16)
        self.layers = nn.Sequential(Layer(16, 2, 6), Layer(16, 2, 6))
        self.ln_f, self.head = nn.LayerNorm(16), nn.Linear(16, 20, bias=False)
        self.head.weight = self.wte.weight
        nn.init.normal_(self.wte.weight, std=0.2)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(6))
        return self.head(self.ln_f(self.layers(x)))


@pytest.mark.parametrize("module", [lambda: Encoder(True, True), lambda: Encoder(False, True), lambda: Encoder(True, False), Gpt])
def test_a_transformer_trains_as_in_pytorch(module):
    draw = numpy.random.default_rng(4)
    torch.manual_seed(4)
    ids = draw.integers(0, 20, size=(64, 7)).astype("i4")
    made = agree(module(), numpy.ascontiguousarray(ids[:, :6]), numpy.ascontiguousarray(ids[:, 1:]), entropy_of_positions)
    assert baton.simulate(made, cluster="dgx-h100", devices=4, strategy="ddp", batch=64).time > 0


def test_a_shared_weight_is_one_parameter():
    module = Gpt()
    assert baton.from_torch(module, torch.zeros(2, 6, dtype=torch.int32)).parameter_count == sum(
        one.numel() for one in module.parameters())


def test_from_torch_leaves_the_module_as_it_is():
    module = Cnn()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    baton.from_torch(module, torch.randn(2, 3, 12, 12))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items()) and module.training


@pytest.mark.parametrize("module, word", [
    (nn.Sequential(nn.Linear(4, 4), nn.Tanh()), "Tanh"),
    (nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 4)), "LSTM"),
    (nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)), "groups|group"),
    (nn.ReLU(), "nothing to train"),
])
def test_ops_that_baton_does_not_have_are_named(module, word):
    example = torch.randn(2, 4, 8, 8) if isinstance(module, nn.Sequential) and isinstance(module[0], nn.Conv2d) else torch.randn(2, 4)
    with pytest.raises(baton.UsageError, match=word):
        baton.from_torch(module, example)


def test_a_module_that_cannot_be_traced_is_refused():
    class Deciding(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(baton.UsageError, match="trace"):
        baton.from_torch(Deciding(), torch.randn(2, 4))
