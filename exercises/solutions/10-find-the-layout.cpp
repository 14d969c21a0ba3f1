#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "exercise.h"

// Simulated layouts teach what each single change does to time and memory: a stage of ZeRO more, twice the micro-batches,
// recomputation. From them the layouts that were not simulated are guessed, and the one that promises the most is simulated next.
namespace {

// The error that guesses may have, as logarithms.
constexpr double unsure_of_memory = 0.05;
constexpr double unsure_of_time = 0.05;

struct Guess {
  double time = 0;  // logarithms, so that changes add up
  double memory = 0;
};

struct Known {
  Layout layout;
  Guess is;
};

enum class Change { zero_1, zero_2, zero_3, double_micro_batches, recompute };

class Search {
 public:
  Search(const Job& job, const TryOut& try_out) : job_(job), try_out_(try_out) {}

  Layout run() {
    for (int pp = 1; pp <= job_.devices; pp *= 2) {
      for (int tp = 1; pp * tp <= job_.devices; tp *= 2) {
        const int dp = job_.devices / pp / tp;
        if (job_.heads % tp == 0 && pp <= job_.blocks && dp <= job_.batch) {
          add_layouts(dp, pp, tp);
          simulate({dp, pp, tp, dp > 1 ? 1 : 0, std::min(pp, largest_count(dp)), false});
        }
      }
    }
    while (tries_ < most_tries && !open_.empty()) {
      simulate(most_promising());
    }
    const auto before = [&](const Known& a, const Known& b) {
      return std::pair(!fits(a), a.is.time) < std::pair(!fits(b), b.is.time);
    };
    return std::min_element(known_.begin(), known_.end(), before)->layout;
  }

 private:
  int largest_count(int dp) const {
    int count = 1;
    while (2 * count <= std::min(8, job_.batch / dp)) {
      count *= 2;
    }
    return count;
  }

  void add_layouts(int dp, int pp, int tp) {
    for (int zero = 0; zero <= (dp > 1 ? 3 : 0); ++zero) {
      for (int count = 1; count <= largest_count(dp); count *= 2) {
        open_.push_back({dp, pp, tp, zero, count, false});
        open_.push_back({dp, pp, tp, zero, count, true});
      }
    }
  }

  void simulate(const Layout& layout) {
    std::erase(open_, layout);
    ++tries_;
    const Tried tried = try_out_(layout);
    if (tried.refused.empty()) {
      known_.push_back({layout, {std::log(tried.seconds), std::log(tried.memory)}});
    }
  }

  bool fits(const Known& one) const { return one.is.memory <= std::log(job_.memory); }

  static bool same_product(const Layout& a, const Layout& b) { return a.dp == b.dp && a.pp == b.pp && a.tp == b.tp; }

  // The changes that lead from one layout of a product to another, each with how often it is made; negative: undone.
  static std::map<Change, int> between(const Layout& from, const Layout& to) {
    std::map<Change, int> changes;
    for (int zero = std::min(from.zero, to.zero); zero < std::max(from.zero, to.zero); ++zero) {
      changes[static_cast<Change>(zero)] = from.zero < to.zero ? 1 : -1;
    }
    const int doublings = static_cast<int>(std::lround(std::log2(static_cast<double>(to.micro_batches) / from.micro_batches)));
    if (doublings != 0) {
      changes[Change::double_micro_batches] = doublings;
    }
    if (from.recompute != to.recompute) {
      changes[Change::recompute] = to.recompute ? 1 : -1;
    }
    return changes;
  }

  // The effect of a change: as between layouts that differ in nothing else, above all those of the same product; at first a rule
  // of thumb.
  Guess effect(Change change, const Layout& on) const {
    const bool pipeline = on.pp > 1;
    const std::array<Guess, 5> thumb{{{-0.05, -0.4}, {0.05, -0.05}, {0.1, -0.1}, {pipeline ? -0.05 : 0.1, -0.2}, {0.2, -0.3}}};
    double weights = 0.5;
    Guess sum{weights * thumb[static_cast<std::size_t>(change)].time, weights * thumb[static_cast<std::size_t>(change)].memory};
    for (const Known& a : known_) {
      for (const Known& b : known_) {
        if (!same_product(a.layout, b.layout) || (a.layout.pp > 1) != pipeline) {
          continue;
        }
        const std::map<Change, int> changes = between(a.layout, b.layout);
        if (changes.size() == 1 && changes.begin()->first == change && changes.begin()->second > 0) {
          const double weight = same_product(a.layout, on) ? 4 : 1;
          const int times = changes.begin()->second;
          sum.time += weight * (b.is.time - a.is.time) / times;
          sum.memory += weight * (b.is.memory - a.is.memory) / times;
          weights += weight;
        }
      }
    }
    return {sum.time / weights, sum.memory / weights};
  }

  // From those of the same product that differ in the least.
  std::optional<Guess> guess(const Layout& layout, const std::array<Guess, 5>& effects) const {
    std::optional<Guess> best;
    int least = std::numeric_limits<int>::max();
    for (const Known& one : known_) {
      if (!same_product(one.layout, layout)) {
        continue;
      }
      Guess here = one.is;
      int steps = 0;
      for (const auto& [change, times] : between(one.layout, layout)) {
        here.time += times * effects[static_cast<std::size_t>(change)].time;
        here.memory += times * effects[static_cast<std::size_t>(change)].memory;
        steps += std::abs(times);
      }
      if (steps < least) {
        least = steps;
        best = here;
      }
    }
    return best;
  }

  // That which probably fits and saves the most time against the best that is known to fit.
  Layout most_promising() {
    double best = std::numeric_limits<double>::infinity();
    double worst = -best;
    for (const Known& one : known_) {
      best = fits(one) ? std::min(best, one.is.time) : best;
      worst = std::max(worst, one.is.time);
    }
    const double reference = std::isfinite(best) ? best : worst + 1;
    std::map<std::array<int, 3>, std::array<Guess, 5>> effects;
    const Layout* chosen = &open_[0];
    double most = -std::numeric_limits<double>::infinity();
    for (const Layout& layout : open_) {
      auto& own = effects[{layout.dp, layout.pp, layout.tp}];
      if (own[4].time == 0) {
        for (std::size_t change = 0; change < own.size(); ++change) {
          own[change] = effect(static_cast<Change>(change), layout);
        }
      }
      const std::optional<Guess> guessed = guess(layout, own);
      if (!guessed) {
        continue;
      }
      const double room = std::log(job_.memory) - guessed->memory;
      const double probability = 1 / (1 + std::exp(-room / unsure_of_memory));
      const double gain = reference - guessed->time;
      // Guesses are uncertain: what should be as long may be shorter.
      const double value = probability * unsure_of_time * std::log1p(std::exp(gain / unsure_of_time));
      if (value > most) {
        most = value;
        chosen = &layout;
      }
    }
    return *chosen;
  }

  const Job& job_;
  const TryOut& try_out_;
  std::vector<Known> known_;
  std::vector<Layout> open_;
  int tries_ = 0;
};

}  // namespace

Layout find_layout(const Job& job, const TryOut& try_out) { return Search(job, try_out).run(); }
