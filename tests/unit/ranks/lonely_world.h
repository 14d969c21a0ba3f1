#pragma once

#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

#include "baton/ranks/world.h"

namespace baton::ranks::test {

/// Rank 0 of two, of which the other is not there: it says whatever this one says, and messages wait until a test ends them.
class LonelyWorld final : public World {
 public:
  LonelyWorld() : World(0, 2) {}

  using World::all_gather;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::span<const std::size_t> sizes) override {
    ++gatherings;
    auto place = all.begin();
    for (const std::size_t size : sizes) {
      std::copy_n(mine.begin(), std::min(size, mine.size()), place);
      place += static_cast<std::ptrdiff_t>(size);
    }
  }
  std::vector<Blob> gather(std::span<const std::byte> mine) override { return {2, Blob(mine.begin(), mine.end())}; }
  void broadcast(Blob&, int) override {}
  int largest_tag() const override { return 1 << 20; }
  void post(const Message&, Listener& listener, std::size_t number) override { posted.emplace_back(&listener, number); }
  bool poll() override {
    ++polls;
    return true;
  }
  bool under_way() const override { return busy; }
  std::optional<std::vector<std::string>> gather_errors(std::string_view, Nanoseconds) override { return std::nullopt; }
  void abort(int) override { std::abort(); }

  std::atomic<int> gatherings{0};
  std::atomic<int> polls{0};
  std::atomic<bool> busy{false};
  std::vector<std::pair<Listener*, std::size_t>> posted;
};

}  // namespace baton::ranks::test
