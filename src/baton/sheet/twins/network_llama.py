def attend(q, k, v):
    """Causal attention of (batch, head, position, feature)."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, -math.inf).softmax(-1) @ v


class RmsNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5).to(x.dtype) * self.weight


def rotate(x):
    """Turns each pair of features (i, i + half) by an angle that grows with the position."""
    half = x.shape[-1] // 2
    rates = ROTARY_BASE ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    angles = torch.arange(x.shape[-2], dtype=torch.float64, device=x.device)[:, None] * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        narrow = KV_HEADS * (DIM // HEADS)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(DIM, wide, bias=False) for wide in (DIM, narrow, narrow, DIM))

    def forward(self, x):
        heads = lambda y: y.unflatten(-1, (-1, DIM // HEADS)).transpose(1, 2)
        q, k, v = rotate(heads(self.q_proj(x))), rotate(heads(self.k_proj(x))), heads(self.v_proj(x))
        k, v = (y.repeat_interleave(HEADS // KV_HEADS, 1) for y in (k, v))  # heads of a group share keys and values
        return self.o_proj(attend(q, k, v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(DIM, HIDDEN, bias=False), nn.Linear(DIM, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.self_attn = RmsNorm(), Attention()
        self.post_attention_layernorm, self.mlp = RmsNorm(), FeedForward()

    def forward(self, x):
        #: if dropped
        x = x + F.dropout(self.self_attn(self.input_layernorm(x)), DROPOUT, self.training)
        return x + F.dropout(self.mlp(self.post_attention_layernorm(x)), DROPOUT, self.training)
        #: else
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))
        #: end


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(VOCAB, DIM),
            "layers": nn.ModuleList(Layer() for _ in range(DEPTH)),
            "norm": RmsNorm(),
        })
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x = self.model["embed_tokens"](ids)
        #: if dropped
        x = F.dropout(x, DROPOUT, self.training)
        #: end
        for layer in self.model["layers"]:
            x = layer(x)
        return self.lm_head(self.model["norm"](x))


def make_model():
    model = Llama()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    return model


def start_tensor(weights, name):
    return weights[name]


def wrap_layers(model, wrap):
    for i, layer in enumerate(model.model["layers"]):
        model.model["layers"][i] = wrap(layer)
    return model
