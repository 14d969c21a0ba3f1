// Guided tours: six situations each, with what to look at. Numbers are not told: they are on the page.

const mlp = {model: 'mlp:dim=4096,depth=8', cluster: 'dgx-a100', batch: '512'};
const deep = {model: 'mlp:dim=4096,depth=16', cluster: 'dgx-a100', batch: '1024'};
const thin = {model: 'mlp:dim=256,depth=64', cluster: 'dgx-a100', batch: '512'};
const gpt = {model: 'gpt2', cluster: 'dgx-a100', batch: '64', precision: 'bf16', optimizer: 'adamw'};
const step = (text, words, other = null) => ({text, words, other});

export const tours = [
  {id: 'strong-scaling', title: 'Strong scaling', steps: [
    step('One GPU does the whole batch. Remember its step: every speedup below is measured against it.', {...mlp, devices: '1', strategy: 'single'}),
    step('Two GPUs, half of the batch each. Is the step half as long? Look for what the timeline shows in addition to computing.', {...mlp, devices: '2', strategy: 'ddp'}),
    step('Eight GPUs, a whole node. The computing per device shrinks; the gradients that must be summed do not.', {...mlp, devices: '8', strategy: 'ddp'}),
    step('Sixteen GPUs are two nodes. Now gradients cross the network too: see where the time of each device goes.', {...mlp, devices: '16', strategy: 'ddp'}),
    step('64 GPUs and the same batch. Compare the efficiency with that on 8, and with the share that Amdahl calls serial.', {...mlp, devices: '64', strategy: 'ddp'}),
    step('Weak scaling: eight times the devices and eight times the batch, so that each device computes as much as on 8. What makes the step longer is communication.', {...mlp, devices: '64', strategy: 'ddp', batch: '4096'}, {...mlp, devices: '8', strategy: 'ddp'})]},
  {id: 'communication', title: 'Communication against computation', steps: [
    step('Four GPUs on PCIe with a small batch. Which share of the step is communication that nothing overlaps?', {...mlp, cluster: 'pcie-4', devices: '4', strategy: 'ddp', batch: '64'}),
    step('A batch that is sixteen times as large. The bytes are the same, the computing is not.', {...mlp, cluster: 'pcie-4', devices: '4', strategy: 'ddp', batch: '1024'}),
    step('A narrower model, dim 1024: computing shrinks with the square of the width, and so do the gradients. So the share of communication hardly changes.', {...mlp, model: 'mlp:dim=1024,depth=8', cluster: 'pcie-4', devices: '4', strategy: 'ddp', batch: '1024'}, {...mlp, cluster: 'pcie-4', devices: '4', strategy: 'ddp', batch: '1024'}),
    step('Links ten times as wide. Move the slider on and see when links no longer matter.', {...mlp, cluster: 'pcie-4', devices: '4', strategy: 'ddp', batch: '64', 'what-if': 'link=10x'}),
    step('Devices four times as fast and links as they are: faster devices make communication the larger share.', {...mlp, cluster: 'pcie-4', devices: '4', strategy: 'ddp', batch: '1024', 'what-if': 'compute=4x'}),
    step('The same step on a node whose GPUs are joined by NVLink, compared with PCIe.', {...mlp, cluster: 'dgx-a100', devices: '4', strategy: 'ddp', batch: '64'}, {...mlp, cluster: 'pcie-4', devices: '4', strategy: 'ddp', batch: '64'})]},
  {id: 'dp-ddp', title: 'DP against DDP', steps: [
    step('DataParallel (dp): the first device hands out the weights and collects every gradient. Look at the rows of the first device.', {...mlp, devices: '4', strategy: 'dp'}),
    step('DistributedDataParallel (ddp): every device sums its share of the gradients. Nobody is the first.', {...mlp, devices: '4', strategy: 'ddp'}),
    step('Both, on eight devices. How does the difference grow with the number of devices?', {...mlp, devices: '8', strategy: 'ddp'}, {...mlp, devices: '8', strategy: 'dp'}),
    step('ddp sums gradients in buckets while the backward goes on. With one bucket for everything the summing begins at the end.', {...mlp, devices: '8', strategy: 'ddp', 'bucket-mb': '10000', 'first-bucket-mb': '10000'}, {...mlp, devices: '8', strategy: 'ddp'}),
    step('A deep, narrow model with one bucket per layer, compared with buckets of 25 MiB: more messages, each with its latency, for the same bytes.', {...thin, devices: '8', strategy: 'ddp', 'bucket-mb': '0.1', 'first-bucket-mb': '0.1'}, {...thin, devices: '8', strategy: 'ddp'}),
    step('Slow links: dp and ddp again, with a tenth of the bandwidth. Which one suffers more?', {...mlp, devices: '4', strategy: 'ddp', 'what-if': 'link=0.1x'}, {...mlp, devices: '4', strategy: 'dp', 'what-if': 'link=0.1x'})]},
  {id: 'delay', title: 'A delay', steps: [
    step('Four devices that train alike, as a start.', {...mlp, devices: '4', strategy: 'ddp'}),
    step('Device 1 waits before its backward. How long do the others wait, and where?', {...mlp, devices: '4', strategy: 'ddp', delay: 'before=backward,device=1,ms=10'}),
    step('All devices wait equally long. The step is about as long, but nobody waits for anybody.', {...mlp, devices: '4', strategy: 'ddp', delay: 'before=backward,device=all,ms=10'}),
    step('The same delay before the update: after the last sum. What is different in the timeline?', {...mlp, devices: '4', strategy: 'ddp', delay: 'before=update,device=1,ms=10'}),
    step('A pipeline with the same delay on device 1. Which devices can work on, and for how long?', {...deep, devices: '4', strategy: '1f1b', delay: 'before=backward,device=1,ms=10'}),
    step('A delay that is shorter than the slack of a device costs less than its length. Move the slider until it costs something.', {...deep, devices: '4', strategy: '1f1b', delay: 'before=backward,device=1,ms=0.5'}, {...deep, devices: '4', strategy: '1f1b'})]},
  {id: 'slow-device', title: 'One slow device', steps: [
    step('A device that is late in every step is a straggler. Here a delay makes device 2 slow in the forward.', {...mlp, devices: '8', strategy: 'ddp', delay: 'before=forward,device=2,ms=5'}),
    step('The findings name the device that the others wait for, and the phase. Check them against the timeline.', {...mlp, devices: '8', strategy: 'ddp', delay: 'before=backward,device=2,ms=5'}),
    step('More devices do not help: all of them wait. Compare the step on 16 with that on 8.', {...mlp, devices: '16', strategy: 'ddp', delay: 'before=forward,device=2,ms=5'}, {...mlp, devices: '8', strategy: 'ddp', delay: 'before=forward,device=2,ms=5'}),
    step('Sharded training (zero-3) meets at every layer. Does the straggler cost more there? The same without the delay is next to it.', {...mlp, devices: '8', strategy: 'zero-3', delay: 'before=forward,device=2,ms=5'}, {...mlp, devices: '8', strategy: 'zero-3'}),
    step('With a larger batch the same delay is a smaller share of the step.', {...mlp, devices: '8', strategy: 'ddp', batch: '4096', delay: 'before=forward,device=2,ms=5'}),
    step('In a pipeline a slow stage sets the pace: stages of 7, 3, 3 and 3 blocks, compared with equal ones.', {...deep, devices: '4', strategy: '1f1b', split: '7,3,3,3'}, {...deep, devices: '4', strategy: '1f1b'})]},
  {id: 'pipelines', title: 'The naive split, and pipelines that win the idle time back', steps: [
    step('The layers are split over four devices. Only one of them works at a time: the baton is passed along.', {...deep, devices: '4', strategy: 'layers'}),
    step('GPipe cuts the batch into micro-batches, so that stages overlap. The bubble at both ends stays.', {...deep, devices: '4', strategy: 'gpipe'}),
    step('More micro-batches make the bubble a smaller share. But the step is longer: each micro-batch reads all weights, however few samples it has.', {...deep, devices: '4', strategy: 'gpipe', 'micro-batches': '32'}, {...deep, devices: '4', strategy: 'gpipe'}),
    step('1F1B does a backward as soon as it can: the same idle time, fewer activations held at once.', {...deep, devices: '4', strategy: '1f1b', 'micro-batches': '32'}, {...deep, devices: '4', strategy: 'gpipe', 'micro-batches': '32'}),
    step('Interleaved stages: two per device. The bubble is halved, and more than twice as many messages are sent.', {...deep, devices: '4', strategy: 'interleaved', 'micro-batches': '8'}, {...deep, devices: '4', strategy: '1f1b', 'micro-batches': '8'}),
    step('Zero bubble (zb-h1): the backward for the weights waits until there is nothing else to do. Choose "draw my own" and try to beat it.', {...deep, devices: '4', strategy: 'zb-h1', 'micro-batches': '8'}, {...deep, devices: '4', strategy: '1f1b', 'micro-batches': '8'})]},
  {id: 'memory', title: 'Memory and ZeRO', steps: [
    step('GPT-2 with AdamW under ddp: every device holds all parameters and both optimizer states. The bars show the fullest moment, when activations are many and gradients few.', {...gpt, devices: '8', strategy: 'ddp'}),
    step('ZeRO 1 shards the optimizer states over the replicas. Compare the bars of memory.', {...gpt, devices: '8', strategy: 'zero-1'}, {...gpt, devices: '8', strategy: 'ddp'}),
    step('ZeRO 2 shards the gradients too. Here they are summed over four micro-batches, so that they are kept through the step and the bars show them.', {...gpt, devices: '8', strategy: 'zero-2', 'micro-batches': '4'}, {...gpt, devices: '8', strategy: 'zero-1', 'micro-batches': '4'}),
    step('ZeRO 3 shards the parameters too, and gathers each layer when it is needed. What does it send more?', {...gpt, devices: '8', strategy: 'zero-3'}, {...gpt, devices: '8', strategy: 'ddp'}),
    step('What is left are activations. Recomputing them trades arithmetic for memory.', {...gpt, devices: '8', strategy: 'zero-3', recompute: 'all'}, {...gpt, devices: '8', strategy: 'zero-3'}),
    step('A smaller batch per device holds fewer activations: accumulate gradients over four micro-batches.', {...gpt, devices: '8', strategy: 'zero-2', 'micro-batches': '4'}, {...gpt, devices: '8', strategy: 'zero-2'})]},
  {id: 'tensor', title: 'Tensor and sequence parallelism', steps: [
    step('Each pair of Linear layers is split over two devices: one by columns, the next by rows, then one sum.', {...gpt, devices: '2', tp: '2', strategy: 'tensor'}),
    step('Four parts. Count the collectives in the timeline: there are as many, and each device computes less between them.', {...gpt, devices: '4', strategy: 'tensor'}),
    step('Between the split layers every device still holds all activations. Sequence parallelism divides these too: compare the memory.', {...gpt, devices: '4', strategy: 'tensor', sp: 'on'}, {...gpt, devices: '4', strategy: 'tensor'}),
    step('Links matter: the sums are on the critical path. The same split with a tenth of the bandwidth.', {...gpt, devices: '4', strategy: 'tensor', 'what-if': 'link=0.1x'}, {...gpt, devices: '4', strategy: 'tensor'}),
    step('So tensor parallelism stays within a node, and replicas go across: 4 parts × 4 replicas on two nodes.', {...gpt, devices: '16', strategy: 'product', tp: '4', dp: '4'}),
    step('All three together: 2 parts × 2 stages × 4 replicas. Which of them would you change first?', {...gpt, devices: '16', strategy: 'product', tp: '2', pp: '2', dp: '4', schedule: '1f1b'}, {...gpt, devices: '16', strategy: 'product', tp: '4', dp: '4'})]},
];
