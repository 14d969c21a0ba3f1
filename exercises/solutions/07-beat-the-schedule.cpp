#include <algorithm>
#include <limits>

#include "exercise.h"

// Two families of schedules, each with some numbers to choose. All of them are timed by a model without links that wait; those that
// are shortest by it, and the ones that are known, are simulated. Micro-batches run in order.
namespace {

constexpr int never = std::numeric_limits<int>::max();

struct Device {
  int free = 0;
  int forwards = 0, backs = 0, weights = 0;  // how many of each have run
};

// A pipeline while it runs: which actions can start when.
class Walk {
 public:
  explicit Walk(const Pipeline& pipeline)
      : pipeline_(pipeline),
        devices_(pipeline.devices),
        rows_(pipeline.devices),
        forward_at_(pipeline.devices, std::vector<int>(pipeline.micro_batches, never)),
        back_at_(forward_at_) {
    forward_at_[0].assign(pipeline.micro_batches, 0);
  }

  const Device& device(int d) const { return devices_[d]; }
  int kept(int d) const { return devices_[d].forwards - devices_[d].weights; }
  bool done(int d) const { return devices_[d].weights == pipeline_.micro_batches; }
  // The time at which the next action of a kind has all inputs; `never` if that is not known yet.
  int ready(int d, char kind) const {
    const Device& one = devices_[d];
    if (kind == 'W') {
      return one.weights < one.backs ? one.free : never;
    }
    const int next = kind == 'F' ? one.forwards : one.backs;
    return next == pipeline_.micro_batches ? never : (kind == 'F' ? forward_at_ : back_at_)[d][next];
  }

  void act(int d, char kind, int now) {
    Device& one = devices_[d];
    int& count = kind == 'F' ? one.forwards : kind == 'I' ? one.backs : one.weights;
    const int k = count++;
    rows_[d].push_back({kind, k});
    one.free = now + (kind == 'F' ? pipeline_.forward : kind == 'I' ? pipeline_.backward_input : pipeline_.backward_weight);
    const bool last = d + 1 == pipeline_.devices;
    if (kind == 'F') {
      (last ? back_at_[d] : forward_at_[d + 1])[k] = one.free + (last ? 0 : pipeline_.transfer);
    } else if (kind == 'I' && d > 0) {
      back_at_[d - 1][k] = one.free + pipeline_.transfer;
    }
  }

  bool complete() const {
    return std::all_of(devices_.begin(), devices_.end(), [&](const Device& one) { return one.weights == pipeline_.micro_batches; });
  }
  int length() const {
    return std::max_element(devices_.begin(), devices_.end(), [](const Device& a, const Device& b) { return a.free < b.free; })
        ->free;
  }
  const Rows& rows() const { return rows_; }

 private:
  const Pipeline& pipeline_;
  std::vector<Device> devices_;
  Rows rows_;
  std::vector<std::vector<int>> forward_at_, back_at_;
};

struct Candidate {
  int length = 0;  // by the model
  Rows rows;
};

// Each device takes what can run, one decision after the other in the order of time: a gradient that the stage before waits for
// first, then a forward if memory allows it, and a weight's gradient where it would wait otherwise for longer than `patience`.
Walk greedy(const Pipeline& pipeline, const std::vector<int>& limits, int patience) {
  Walk walk(pipeline);
  while (true) {
    int device = -1;
    int now = never;
    for (int d = 0; d < pipeline.devices; ++d) {
      const int forward = walk.kept(d) < limits[d] ? walk.ready(d, 'F') : never;
      int when = std::min(forward, walk.ready(d, 'I'));
      const int free = walk.device(d).free;
      if (walk.ready(d, 'W') != never && (when == never || when > free + patience)) {
        when = free;
      }
      if (when != never && std::max(when, free) < now) {
        now = std::max(when, free);
        device = d;
      }
    }
    if (device < 0) {
      return walk;
    }
    const bool forward = walk.kept(device) < limits[device] && walk.ready(device, 'F') <= now;
    walk.act(device, walk.ready(device, 'I') <= now ? 'I' : forward ? 'F' : 'W', now);
  }
}

// `ahead` forwards; then I and F by turns, and each W `behind` micro-batches later than its I, or as soon as memory asks for it.
Walk woven(const Pipeline& pipeline, const std::vector<int>& ahead, const std::vector<int>& behind) {
  Walk walk(pipeline);
  bool moved = true;
  while (moved) {
    moved = false;
    for (int d = 0; d < pipeline.devices; ++d) {
      while (!walk.done(d)) {
        const Device& one = walk.device(d);
        const int m = pipeline.micro_batches;
        const bool fills = one.forwards < std::min(m, one.backs + ahead[d]);
        const bool full = walk.kept(d) >= pipeline.activations;
        const bool weight_due = one.weights < one.backs &&
                                (one.backs - one.weights > behind[d] || one.backs == m || (fills && full));
        const char kind = weight_due ? 'W' : fills && !full ? 'F' : 'I';
        if (walk.ready(d, kind) == never) {
          break;
        }
        walk.act(d, kind, std::max(one.free, walk.ready(d, kind)));
        moved = true;
      }
    }
  }
  return walk;
}

// The shortest of those that were simulated.
class Best {
 public:
  explicit Best(const Simulate& simulate) : simulate_(simulate) {}

  void simulate(const Rows& rows) {
    const double time = simulate_(rows);
    if (time >= 0 && (rows_.empty() || time < time_)) {
      time_ = time;
      rows_ = rows;
    }
  }
  const Rows& rows() const { return rows_; }

 private:
  const Simulate& simulate_;
  Rows rows_;
  double time_ = 0;
};

// Simulates `ahead` and `behind` in the order of Baton's schedules: the naive one, 1F1B, zb-h1 and zb-h2 are among them.
void simulate_known(const Pipeline& pipeline, Best& best) {
  const int p = pipeline.devices;
  for (const int slope : {0, 1, 2}) {
    for (const int delay : {0, 1, 2}) {
      std::vector<int> ahead(p);
      std::vector<int> behind(p);
      for (int d = 0; d < p; ++d) {
        ahead[d] = std::min(1 + slope * (p - 1 - d), pipeline.activations);
        behind[d] = delay * d;
      }
      best.simulate(woven(pipeline, ahead, behind).rows());
    }
  }
}

}  // namespace

Rows schedule(const Pipeline& pipeline, const Simulate& simulate) {
  const int p = pipeline.devices;
  std::vector<Candidate> candidates;
  const auto take = [&](const Walk& walk) {
    if (walk.complete()) {
      candidates.push_back({walk.length(), walk.rows()});
    }
  };
  std::vector<int> ahead(p);
  std::vector<int> behind(p);
  for (int least = 1; least <= pipeline.activations; ++least) {  // the activations on the last device; those before it keep more
    for (int slope = 0; slope <= 6; ++slope) {                   // in halves
      for (int d = 0; d < p; ++d) {
        ahead[d] = std::min(least + slope * (p - 1 - d) / 2, pipeline.activations);
      }
      for (int quarter = 0; quarter <= 4; ++quarter) {
        take(greedy(pipeline, ahead, quarter * pipeline.backward_weight / 4));
      }
      for (int later = 0; later <= 2; ++later) {
        for (int rise = 0; rise <= 6; ++rise) {
          for (int d = 0; d < p; ++d) {
            behind[d] = later + rise * d / 2;
          }
          take(woven(pipeline, ahead, behind));
        }
      }
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.length < b.length; });
  Best best(simulate);
  simulate_known(pipeline, best);
  int left = 50;
  for (std::size_t i = 0; i < candidates.size() && left > 0; ++i) {
    if (i == 0 || candidates[i].length != candidates[i - 1].length) {  // one stands for all schedules of the same length
      best.simulate(candidates[i].rows);
      --left;
    }
  }
  return best.rows();
}
