#: imports
#: settings
#: common


#: network


def main():
    args = arguments()
    device = torch.device(args.device)
    fix_seeds()
    model = make_model()
    load_weights(args, model)
    model.to(device)
    # GPU 0 owns everything: in every step DataParallel scatters the batch from it, copies the parameters to the others, gathers
    # the outputs and sums the gradients there. One process drives all GPUs with a thread each. Without GPUs it runs the model as it is.
    gpus = list(range(min(args.gpus or DEVICES, torch.cuda.device_count()))) if args.device == "cuda" else []
    used = [torch.device("cuda", i) for i in gpus]
    parallel = nn.DataParallel(model, device_ids=gpus) if gpus else model
    inputs, targets = load_data(args)
    optimizer, criterion = make_optimizer(model.parameters()), make_loss()

    times, losses = [], []
    for step in range(STEPS):
        x = rows_of_step(inputs, step, 0, BATCH).to(device)
        y = rows_of_step(targets, step, 0, BATCH).to(device)
        synchronize(used)
        begin = time.perf_counter_ns()
        loss = train_step(parallel, optimizer, criterion, x, y)
        synchronize(used)
        times.append(time.perf_counter_ns() - begin)
        losses.append(loss.item())
        show_step(step, times[-1], losses[-1])
    devices = [{"name": f"cuda:{i}", "rank": 0, "peak_bytes": memory_of(i)} for i in gpus]
    write_result(args, times, losses, devices or [{"name": "cpu", "rank": 0, "peak_bytes": None}])


if __name__ == "__main__":
    main()
