class Attention(nn.Module):
    """Every position sees every other."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(DIM, DIM) for _ in range(4))

    def forward(self, x):
        heads = lambda y: y.unflatten(-1, (HEADS, DIM // HEADS)).transpose(1, 2)
        q, k, v = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ v
        return self.dense(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layernorm_before, self.layernorm_after = nn.LayerNorm(DIM, eps=1e-12), nn.LayerNorm(DIM, eps=1e-12)
        self.attention = Attention()
        self.intermediate, self.output = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        x = x + self.attention(self.layernorm_before(x))
        return x + self.output(F.gelu(self.intermediate(self.layernorm_after(x))))


class Vit(nn.Module):
    """A learned vector and the patches of an image, whose first final state gives the scores."""

    def __init__(self):
        super().__init__()
        self.projection = nn.Conv2d(3, DIM, PATCH, PATCH)
        self.cls_token = nn.Parameter(torch.zeros(DIM))
        self.position_embeddings = nn.Parameter(torch.zeros((IMAGE // PATCH) ** 2 + 1, DIM))
        self.layer = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.layernorm, self.classifier = nn.LayerNorm(DIM, eps=1e-12), nn.Linear(DIM, CLASSES)

    def forward(self, images):
        patches = self.projection(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.to(patches.dtype).expand(len(images), 1, -1), patches], 1) + self.position_embeddings
        for layer in self.layer:
            x = layer(x)
        return self.classifier(self.layernorm(x[:, 0]))


def make_model():
    return Vit()


def start_tensor(weights, name):
    """A parameter from `baton train --write-start`, by Hugging Face's names."""
    embeddings = {"projection": "vit.embeddings.patch_embeddings.projection", "cls_token": "vit.embeddings.cls_token",
                  "position_embeddings": "vit.embeddings.position_embeddings", "layernorm": "vit.layernorm"}
    first, _, rest = name.partition(".")
    if first != "layer":
        return weights[".".join(filter(None, (embeddings.get(first, first), rest)))]
    for part in ("query", "key", "value"):
        rest = rest.replace(f"attention.{part}", f"attention.attention.{part}")
    rest = rest.replace("attention.dense", "attention.output.dense")
    for part in ("intermediate", "output"):
        rest = rest.replace(f".{part}.weight", f".{part}.dense.weight").replace(f".{part}.bias", f".{part}.dense.bias")
    return weights["vit.encoder.layer." + rest]


def wrap_layers(model, wrap):
    for i, layer in enumerate(model.layer):
        model.layer[i] = wrap(layer)
    return model
