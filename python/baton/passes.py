"""The passes that strategies are made of. Each takes a draft and gives a draft.

    def dealt(request):
        "Blocks are dealt out to the devices in turn."
        placed = [block % request.devices for block in range(request.blocks)]
        draft = passes.training_step(request, [(0, request.batch, placed)])
        return passes.add_updates(passes.add_transfers(draft), request)

    plan = baton.compile("mlp:dim=32,depth=4", devices="cpu:2", strategy=dealt)
"""

from ._core import add_transfers, add_updates, all_reduce_gradients, reduce_gradients_to, replicate_parameters, training_step

__all__ = [
    "add_transfers", "add_updates", "all_reduce_gradients", "reduce_gradients_to", "replicate_parameters", "training_step",
]
