def attend(q, k, v):
    """Causal attention of (batch, head, position, feature)."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, -math.inf).softmax(-1) @ v


class Projections(nn.Module):
    """Queries, keys and values."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = Projections(), nn.Linear(DIM, DIM)

    def forward(self, x):
        heads = lambda y: y.unflatten(-1, (HEADS, DIM // HEADS)).transpose(1, 2)
        y = attend(heads(self.c_attn.q(x)), heads(self.c_attn.k(x)), heads(self.c_attn.v(x)))
        return self.c_proj(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(DIM), Attention(), nn.LayerNorm(DIM), FeedForward()

    def forward(self, x):
        #: if dropped
        x = x + F.dropout(self.attn(self.ln_1(x)), DROPOUT, self.training)
        return x + F.dropout(self.mlp(self.ln_2(x)), DROPOUT, self.training)
        #: else
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))
        #: end


class Gpt(nn.Module):
    """GPT-2: learned positions, and scores by the embedding's own weight."""

    def __init__(self):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(VOCAB, DIM),
            "wpe": nn.Embedding(CONTEXT, DIM),
            "h": nn.ModuleList(Layer() for _ in range(DEPTH)),
            "ln_f": nn.LayerNorm(DIM),
        })

    def forward(self, ids):
        parts = self.transformer
        x = parts["wte"](ids) + parts["wpe"](torch.arange(ids.shape[1], device=ids.device))
        #: if dropped
        x = F.dropout(x, DROPOUT, self.training)
        #: end
        for layer in parts["h"]:
            x = layer(x)
        return F.linear(parts["ln_f"](x), parts["wte"].weight)


def make_model():
    model = Gpt()
    for name, parameter in model.named_parameters():  # as GPT-2 begins
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    return model


def start_tensor(weights, name):
    """A parameter from `baton train --write-start`, in the layout of Hugging Face: queries, keys and values in one tensor,
    and the inputs of matrices in front of their outputs."""
    for i, part in enumerate("qkv"):
        if f".c_attn.{part}." in name:
            return weights[name.replace(f".{part}.", ".")].chunk(3, -1)[i].t()
    return weights[name].t() if ".c_" in name else weights[name]


def wrap_layers(model, wrap):
    for i, layer in enumerate(model.transformer["h"]):
        model.transformer["h"][i] = wrap(layer)
    return model
