#: imports
import torch.distributed as dist
#: if fsdp
from torch.distributed.fsdp import FullyShardedDataParallel
#: else
from torch.nn.parallel import DistributedDataParallel
#: end
#: settings
#: common


#: network


def main():
    args = arguments()
    # torchrun starts one process per device and says in the environment which one this is.
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if args.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    fix_seeds()
    model = make_model()
    load_weights(args, model)
    #: if fsdp
    # Parameters, gradients and optimizer state are divided over the processes; a layer's are gathered only while it computes.
    wrap = lambda part: FullyShardedDataParallel(part.to(device), device_id=device, use_orig_params=True)
    parallel = wrap(wrap_layers(model, wrap))
    #: else
    # A replica per process; gradients are averaged in buckets while the backward goes on.
    parallel = DistributedDataParallel(
        model.to(device), device_ids=[device.index] if device.type == "cuda" else None, bucket_cap_mb=BUCKET_MB, gradient_as_bucket_view=True
    )
    #: end
    inputs, targets = load_data(args)
    optimizer, criterion = make_optimizer(parallel.parameters()), make_loss()

    # This process's rows of the global batch; the first ones have one more where it does not divide evenly.
    begin_row = rank * (BATCH // world) + min(rank, BATCH % world)
    end_row = begin_row + BATCH // world + (1 if rank < BATCH % world else 0)
    weight = (end_row - begin_row) * world / BATCH  # gradients are averaged over processes, not over rows

    times, losses = [], []
    for step in range(STEPS):
        x = rows_of_step(inputs, step, begin_row, end_row).to(device)
        y = rows_of_step(targets, step, begin_row, end_row).to(device)
        synchronize([device])
        dist.barrier()
        begin = time.perf_counter_ns()
        loss = train_step(parallel, optimizer, criterion, x, y, rank, weight)
        synchronize([device])
        times.append(time.perf_counter_ns() - begin)
        dist.all_reduce(loss)  # outside the time that is taken: only to be shown
        losses.append(loss.item() / world)
        if rank == 0:
            show_step(step, times[-1], losses[-1])
    devices = [None] * world
    dist.all_gather_object(
        devices, {"name": str(device), "rank": rank, "peak_bytes": memory_of(device.index) if device.type == "cuda" else None}
    )
    if rank == 0:
        write_result(args, times, losses, devices)
    dist.barrier()  # rank 0 keeps the list of all, and must not go before the others
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # some builds of PyTorch with gloo hang while the interpreter is taken down
