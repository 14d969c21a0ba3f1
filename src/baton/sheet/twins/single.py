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
    inputs, targets = load_data(args)
    optimizer, criterion = make_optimizer(model.parameters()), make_loss()

    times, losses = [], []
    for step in range(STEPS):
        x = rows_of_step(inputs, step, 0, BATCH).to(device)
        y = rows_of_step(targets, step, 0, BATCH).to(device)
        synchronize([device])
        begin = time.perf_counter_ns()
        loss = train_step(model, optimizer, criterion, x, y)
        synchronize([device])
        times.append(time.perf_counter_ns() - begin)
        losses.append(loss.item())
        show_step(step, times[-1], losses[-1])
    write_result(args, times, losses, [{"name": args.device, "rank": 0, "peak_bytes": memory_of(0)}])


if __name__ == "__main__":
    main()
