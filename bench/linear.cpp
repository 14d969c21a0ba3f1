// Share of the FMA peak that the linear kernels reach in the shape of a training step: forward through a
// stack of equal layers, then back through it with the SGD update fused into dW (and no dX for the first
// layer).
//
//   build/release/bench/linear [--rows 64] [--dim 1024] [--layers 2] [--threads 1] [--seconds 2]
//
// The clock of a shared machine wanders within milliseconds, so each step stands between two short bursts of
// bare multiply-adds on the same threads and is judged by them alone. One thread is timed by the time it ran,
// a team by the wall. Printed are the quartiles over all steps.

#include "baton/exec/backend/cpu/linear.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <string_view>
#include <thread>
#include <vector>

#include "baton/threads/member.h"
#include "fma_peak.h"

namespace {

using namespace baton::exec;
using namespace baton::exec::cpu;
using namespace baton::threads;
using Clock = std::chrono::steady_clock;

struct Options {
  int64_t rows = 64;
  int64_t dim = 1024;
  int64_t layers = 2;
  int64_t threads = 1;
  int64_t seconds = 2;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const int64_t value = i + 1 < argc ? std::atoll(argv[i + 1]) : 0;
    int64_t* option = name == "--rows"      ? &options.rows
                      : name == "--dim"     ? &options.dim
                      : name == "--layers"  ? &options.layers
                      : name == "--threads" ? &options.threads
                      : name == "--seconds" ? &options.seconds
                                            : nullptr;
    if (option == nullptr || value < 1) {
      std::fprintf(stderr, "usage: build/release/bench/linear [--rows N] [--dim N] [--layers N] [--threads N] [--seconds N]\n");
      std::exit(2);
    }
    *option = value;
  }
  return options;
}

struct Release {
  void operator()(float* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};
using Buffer = std::unique_ptr<float[], Release>;

Buffer make_buffer(int64_t floats, float scale) {
  Buffer buffer(static_cast<float*>(::operator new[](static_cast<size_t>(floats) * sizeof(float), std::align_val_t{64})));
  uint32_t state = 1;
  for (int64_t i = 0; i < floats; ++i) {
    state = state * 1664525U + 1013904223U;
    buffer[static_cast<size_t>(i)] = scale * (static_cast<float>(state >> 8) / 8388608.0F - 1.0F);
  }
  return buffer;
}

/// Seconds of the three products in one step, added over the layers.
struct Seconds {
  double forward = 0.0;
  double input = 0.0;
  double weight = 0.0;
};

class Stack {
 public:
  explicit Stack(const Options& options)
      : options_(options),
        forward_(options.rows, options.dim, options.dim, true),
        input_(options.rows, options.dim, options.dim, true),
        weight_(options.rows, options.dim, options.dim, -1e-6F, true),
        barrier_(static_cast<int>(options.threads)) {
    const int team = static_cast<int>(options.threads);
    const int64_t workspace = std::max(
        {forward_.workspace_bytes(team), input_.workspace_bytes(team), weight_.workspace_bytes(team)});
    workspace_ = make_buffer(workspace / static_cast<int64_t>(sizeof(float)) + 1, 0.0F);
    bias_ = make_buffer(options.dim, 0.01F);
    for (int64_t layer = 0; layer < options.layers; ++layer) {
      weights_.push_back(make_buffer(options.dim * options.dim, 0.03F));
    }
    for (int64_t layer = 0; layer <= options.layers; ++layer) {
      activations_.push_back(make_buffer(options.rows * options.dim, 1.0F));
      gradients_.push_back(make_buffer(options.rows * options.dim, 1.0F));
    }
  }

  /// One step, called by every member of the team.
  Seconds step(Member member) {
    const auto layers = static_cast<size_t>(options_.layers);
    Seconds seconds;
    const auto now = [&] {
      if (member.count == 1) return baton::bench::thread_seconds();
      return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    };
    const auto timed = [&](double& total, auto&& work) {
      const double start = now();
      work();
      total += now() - start;
    };
    float* workspace = workspace_.get();
    for (size_t i = 0; i < layers; ++i) {
      timed(seconds.forward, [&] {
        forward_.run(activations_[i].get(), weights_[i].get(), bias_.get(), activations_[i + 1].get(), workspace, member);
      });
    }
    for (size_t i = layers; i-- > 0;) {
      if (i > 0) {
        timed(seconds.input, [&] {
          input_.run(gradients_[i + 1].get(), weights_[i].get(), activations_[i].get(), gradients_[i].get(), workspace, member);
        });
      }
      timed(seconds.weight,
            [&] { weight_.run(activations_[i].get(), gradients_[i + 1].get(), weights_[i].get(), nullptr, workspace, member); });
    }
    return seconds;
  }

  Barrier& barrier() { return barrier_; }

 private:
  Options options_;
  LinearForward forward_;
  LinearBackwardInput input_;
  LinearBackwardWeight weight_;
  Barrier barrier_;
  Buffer workspace_;
  Buffer bias_;
  std::vector<Buffer> weights_;
  std::vector<Buffer> activations_;
  std::vector<Buffer> gradients_;
};

/// The rates that the steps of one product reached, as shares of the peak measured next to them.
struct Shares {
  std::vector<double> values;

  void print(const char* name) {
    if (values.empty()) return;
    std::sort(values.begin(), values.end());
    const size_t count = values.size();
    std::printf("%-8s %.3f  [%.3f .. %.3f]\n", name, values[count / 2], values[count / 4], values[count * 3 / 4]);
  }
};

struct Report {
  Shares forward;
  Shares input;
  Shares weight;
  Shares step;
  Shares peak;
};

Report time_products(Stack& stack, const Options& options) {
  const int threads = static_cast<int>(options.threads);
  const auto layers = static_cast<double>(options.layers);
  const double product_flops = 2.0 * static_cast<double>(options.rows) * static_cast<double>(options.dim) *
                               static_cast<double>(options.dim);
  const double burst_seconds = 0.0005;
  const auto end = Clock::now() + std::chrono::seconds(options.seconds);

  Report report;
  std::vector<double> bursts(static_cast<size_t>(threads));
  std::atomic<bool> running{true};
  const auto member_loop = [&](Member member) {
    baton::bench::pin_to_core(member.index);
    const auto peak = [&] {
      member.sync();
      bursts[static_cast<size_t>(member.index)] = baton::bench::fma_burst_gflops(burst_seconds);
      member.sync();
      return std::accumulate(bursts.begin(), bursts.end(), 0.0);
    };
    double before = peak();
    while (running) {
      const Seconds seconds = stack.step(member);
      const double after = peak();
      if (member.index == 0) {
        const double scale = 1e-9 / (0.5 * (before + after));
        report.peak.values.push_back(after);
        report.forward.values.push_back(product_flops * layers / seconds.forward * scale);
        if (options.layers > 1) {
          report.input.values.push_back(product_flops * (layers - 1.0) / seconds.input * scale);
        }
        report.weight.values.push_back(product_flops * layers / seconds.weight * scale);
        report.step.values.push_back(product_flops * (3.0 * layers - 1.0) / (seconds.forward + seconds.input + seconds.weight) *
                                     scale);
        running = Clock::now() < end || report.step.values.size() < 3;
      }
      before = after;
      member.sync();
    }
  };
  std::vector<std::thread> team;
  for (int index = 0; index < threads; ++index) {
    team.emplace_back([&, index] { member_loop(Member{index, threads, &stack.barrier()}); });
  }
  for (std::thread& thread : team) thread.join();
  return report;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  Stack stack(options);
  Report report = time_products(stack, options);
  std::printf("rows %ld, %ld layers of %ld x %ld, %ld threads\n", static_cast<long>(options.rows),
              static_cast<long>(options.layers), static_cast<long>(options.dim), static_cast<long>(options.dim),
              static_cast<long>(options.threads));
  std::printf("product  share of the peak, median [quartiles]\n");
  report.forward.print("forward");
  report.input.print("dX");
  report.weight.print("dW");
  report.step.print("step");
  std::printf("peak     %.1f GFLOP/s\n", *std::max_element(report.peak.values.begin(), report.peak.values.end()));
  return 0;
}
