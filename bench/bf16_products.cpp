// The products of a linear layer in bf16 (linear_bf16.h) compared with those in float32 (linear.h): GFLOP/s of all threads
// together.
//
//   build/release/bench/bf16_products [--threads 1] [rows x in x out ...]
//   build/release/bench/bf16_products --threads 16 512x3072x768 1024x2048x2048
//
// Each is repeated for a tenth of a second in turn with the other, and the medians are printed. Without AMX the bf16 products run
// on a model of it in plain C++, which says nothing.

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "baton/base/narrow.h"
#include "baton/exec/backend/cpu/linear.h"
#include "baton/exec/backend/cpu/linear_bf16.h"
#include "baton/threads/member.h"
#include "fma_peak.h"

namespace {

using namespace baton;
using namespace baton::exec::cpu;
using Clock = std::chrono::steady_clock;

struct Extents {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
};

template <typename Element>
class Tensor {
 public:
  Tensor(int64_t elements, float scale) : memory_(new (std::align_val_t{64}) Element[static_cast<size_t>(elements)]) {
    uint32_t state = 1;
    for (int64_t i = 0; i < elements; ++i) {
      state = state * 1664525U + 1013904223U;
      const float value = scale * (static_cast<float>(state >> 8) / 8388608.0F - 1.0F);
      if constexpr (sizeof(Element) == 2) {
        memory_[static_cast<size_t>(i)] = Bf16(value).bits;
      } else {
        memory_[static_cast<size_t>(i)] = static_cast<Element>(value);
      }
    }
  }
  Element* get() const { return memory_.get(); }
  Values values() const { return {reinterpret_cast<std::byte*>(get()), sizeof(Element) == 2 ? DType::bf16 : DType::f32}; }

 private:
  struct Release {
    void operator()(Element* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  std::unique_ptr<Element[], Release> memory_;
};

using Work = std::function<void(const threads::Member&)>;

/// Median seconds of each of two kinds of work that take turns.
std::pair<double, double> time_in_turn(int threads, const Work& first, const Work& second) {
  threads::Barrier barrier(threads);
  std::vector<double> times[2];
  std::atomic<bool> running{true};
  const auto loop = [&](const threads::Member& member) {
    bench::pin_to_core(member.index);
    const auto begin = Clock::now();
    while (running) {
      for (int which = 0; which < 2; ++which) {
        member.sync();
        const auto start = Clock::now();
        (which == 0 ? first : second)(member);
        member.sync();
        if (member.index == 0) {
          times[which].push_back(std::chrono::duration<double>(Clock::now() - start).count());
        }
      }
      if (member.index == 0) {
        running = Clock::now() - begin < std::chrono::milliseconds(200) || times[0].size() < 5;
      }
      member.sync();
    }
  };
  std::vector<std::thread> team;
  for (int index = 0; index < threads; ++index) {
    team.emplace_back([&, index] { loop(threads::Member{index, threads, &barrier}); });
  }
  for (std::thread& thread : team) thread.join();
  const auto median = [](std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  return {median(times[0]), median(times[1])};
}

void print_rates(const Extents& s, int threads, TileUnit unit) {
  const LinearForward forward(s.rows, s.in, s.out, true);
  const LinearBackwardInput input(s.rows, s.in, s.out, true);
  const LinearBackwardWeight weight(s.rows, s.in, s.out, 1, false);
  const LinearForwardBf16 forward_bf16(unit, s.rows, s.in, s.out, true);
  const LinearBackwardInputBf16 input_bf16(unit, s.rows, s.in, s.out);
  const LinearBackwardWeightBf16 weight_bf16(unit, s.rows, s.in, s.out, 1, false);
  const Tensor<std::byte> workspace(
      std::max({forward.workspace_bytes(threads), input.workspace_bytes(threads), weight.workspace_bytes(threads),
                forward_bf16.workspace_bytes(threads), input_bf16.workspace_bytes(threads), weight_bf16.workspace_bytes(threads)}),
      0);
  const Tensor<float> x(s.rows * s.in, 1), dx(s.rows * s.in, 1), y(s.rows * s.out, 1), w(s.in * s.out, 0.05F), bias(s.out, 1),
      dw(s.in * s.out, 1), db(s.out, 1);
  const Tensor<std::uint16_t> nx(s.rows * s.in, 1), ndx(s.rows * s.in, 1), ny(s.rows * s.out, 1), nw(s.in * s.out, 0.05F),
      nbias(s.out, 1), ndw(s.in * s.out, 1), ndb(s.out, 1);
  const auto read_only = [](const Values& values) { return ConstValues{values.first, values.type}; };
  void* space = workspace.get();
  const struct {
    const char* name;
    Work wide;
    Work narrow;
  } products[] = {
      {"forward", [&](const threads::Member& m) { forward.run(x.get(), w.get(), bias.get(), y.get(), space, m); },
       [&](const threads::Member& m) { forward_bf16.run(nx.get(), nw.get(), read_only(nbias.values()), ny.values(), space, m); }},
      {"dX", [&](const threads::Member& m) { input.run(y.get(), w.get(), x.get(), dx.get(), space, m); },
       [&](const threads::Member& m) { input_bf16.run(ny.get(), nw.get(), read_only(nx.values()), ndx.values(), space, m); }},
      {"dW", [&](const threads::Member& m) { weight.run(x.get(), y.get(), dw.get(), db.get(), space, m); },
       [&](const threads::Member& m) { weight_bf16.run(nx.get(), ny.get(), ndw.values(), ndb.values(), space, m); }},
  };
  const double flops = 2e-9 * static_cast<double>(s.rows) * static_cast<double>(s.in) * static_cast<double>(s.out);
  for (const auto& product : products) {
    const auto [wide, narrow] = time_in_turn(threads, product.wide, product.narrow);
    std::printf("| %ldx%ldx%ld %s | %.0f | %.0f | %.2f |\n", static_cast<long>(s.rows), static_cast<long>(s.in),
                static_cast<long>(s.out), product.name, flops / wide, flops / narrow, wide / narrow);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 1;
  std::vector<Extents> shapes;
  for (int i = 1; i < argc; ++i) {
    Extents shape;
    if (std::string(argv[i]) == "--threads" && i + 1 < argc) {
      threads = std::max(1, std::atoi(argv[++i]));
    } else if (std::sscanf(argv[i], "%ldx%ldx%ld", &shape.rows, &shape.in, &shape.out) == 3 &&
               std::min({shape.rows, shape.in, shape.out}) > 0) {
      shapes.push_back(shape);
    } else {
      std::fprintf(stderr, "usage: build/release/bench/bf16_products [--threads N] [ROWSxINxOUT ...]\n");
      return 2;
    }
  }
  if (shapes.empty()) {
    shapes = {{512, 768, 3072}, {512, 3072, 768}, {64, 2048, 2048}, {1024, 2048, 2048}};
  }
  const TileUnit unit = has_amx() ? TileUnit::amx : TileUnit::portable;
  std::printf("bf16 by %s, %d threads; peak of fp32 multiply-adds on one core %.0f GFLOP/s, on all %.0f\n",
              unit == TileUnit::amx ? "AMX" : "a model of AMX", threads, bench::fma_peak_gflops(1),
              bench::fma_peak_gflops(threads));
  std::printf("| rows x in x out | fp32 GFLOP/s | bf16 GFLOP/s | times |\n|---|---|---|---|\n");
  for (const Extents& shape : shapes) {
    print_rates(shape, threads, unit);
  }
  return 0;
}
