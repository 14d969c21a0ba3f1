#pragma once

#include <functional>
#include <string>
#include <vector>

/// A model to train and the machine to train it on. Training is in bf16 with Adam.
struct Job {
  std::string model;    // as on the command line
  std::string cluster;  // likewise
  int devices = 1;
  int devices_per_node = 1;
  int batch = 1;      // samples per step, on all devices together
  int blocks = 1;     // that stages can be made of
  int heads = 1;      // attention heads
  double memory = 0;  // bytes per device
  double parameters = 0;
  double flops = 0;     // floating-point operations of a step, forward and backward, on all devices together, without recomputation
  double crossing = 0;  // bytes of one sample's activation between two blocks
  double rate = 0;      // flop/s of a device at large products
  double node_bandwidth = 0;     // bytes per second between two devices of a node
  double network_bandwidth = 0;  // bytes per second between nodes, per node; 0 if there is one node
};

/// A division of a step. dp × pp × tp are all devices. Stages of a pipeline (pp > 1) work by 1F1B.
struct Layout {
  int dp = 1;              // replicas
  int pp = 1;              // devices that the blocks of a replica are spread over
  int tp = 1;              // devices that each tensor is divided over; of one node if they are not more than a node has
  int zero = 0;            // with several replicas: 1 optimizer states, 2 gradients too, 3 parameters too are divided over them
  int micro_batches = 1;   // that the samples of a replica are split into: 1, 2, 4 or 8
  bool recompute = false;  // activations in the backward, instead of keeping all

  bool operator==(const Layout&) const = default;
};

/// The result of simulating a layout.
struct Tried {
  std::string refused;  // why it cannot be, in a sentence; empty if it can
  double seconds = 0;   // the length of a step
  double memory = 0;    // bytes that the fullest device needs: more than the job has is too much
};

/// Simulates a layout. The first 48 calls of a case are answered, later ones are refused.
using TryOut = std::function<Tried(const Layout& layout)>;
constexpr int most_tries = 48;

/// A layout that fits in memory and takes at most 5 % longer than the best of all.
Layout find_layout(const Job& job, const TryOut& try_out);
