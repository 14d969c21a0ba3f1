#include "baton/ranks/clock_fit.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "baton/base/clock.h"
#include "baton/base/error.h"

namespace baton::ranks {
namespace {

constexpr int echoes_a_rank = 24;
constexpr int clock_tag = 1;

class Awaited final : public Listener {
 public:
  void over(std::size_t) override { over_.store(true, std::memory_order_release); }
  bool is_over() const { return over_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> over_{false};
};

void pass(World& world, Message::End end, int peer, std::int64_t& word) {
  Awaited awaited;
  world.post({end, peer, clock_tag, reinterpret_cast<std::byte*>(&word), sizeof word}, awaited, 0);
  for (int turns = 0; !awaited.is_over(); ++turns) {
    world.poll();
    world.progress()->look();
    if (turns > 1000) {
      sched_yield();
    }
  }
}

}  // namespace

ClockReading read_clock(std::span<const Echo> echoes) {
  check(!echoes.empty(), "a clock is read from no echo");
  const Echo& best = *std::min_element(echoes.begin(), echoes.end(),
                                       [](const Echo& a, const Echo& b) { return a.answered - a.asked < b.answered - b.asked; });
  const std::int64_t half = (best.answered - best.asked).count / 2;
  const Nanoseconds middle = best.asked + Nanoseconds(half);
  return {middle, best.there - middle, Nanoseconds(half + 1)};
}

Nanoseconds ClockFit::on_rank_0(Nanoseconds there) const {
  const auto since = static_cast<double>((there - first.offset - first.at).count);
  return first.at + Nanoseconds(std::llround(since / (1 + drift)));
}

ClockFit fit_clock(const ClockReading& before, const ClockReading& after) {
  const auto elapsed = static_cast<double>((after.at - before.at).count);
  const auto gained = static_cast<double>((after.offset - before.offset).count);
  return {before, elapsed > 0 ? gained / elapsed : 0, std::max(before.error, after.error)};
}

std::vector<ClockReading> read_clocks(World& world, bool all) {
  std::vector<ClockReading> readings(static_cast<std::size_t>(world.size()));
  for (int r = 1; r < world.size(); ++r) {
    const bool same = world.hosts()[static_cast<std::size_t>(r)].machine == world.hosts()[0].machine;
    if ((same && !all) || (world.rank() != 0 && world.rank() != r)) {
      continue;
    }
    std::vector<Echo> echoes;
    for (int i = 0; i < echoes_a_rank; ++i) {
      std::int64_t word = 0;
      if (world.rank() == r) {
        pass(world, Message::End::receive, 0, word);
        word = now().count;
        pass(world, Message::End::send, 0, word);
        continue;
      }
      const Nanoseconds asked = now();
      pass(world, Message::End::send, r, word);
      pass(world, Message::End::receive, r, word);
      echoes.push_back({asked, Nanoseconds(word), now()});
    }
    if (world.rank() == 0) {
      readings[static_cast<std::size_t>(r)] = read_clock(echoes);
    }
  }
  return readings;
}

}  // namespace baton::ranks
