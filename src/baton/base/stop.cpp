#include "baton/base/stop.h"

#include <atomic>

namespace baton {
namespace {

std::atomic<Stop> asked{Stop::none};

}  // namespace

void ask_to_stop(Stop how) {
  Stop before = asked.load();
  while (before < how && !asked.compare_exchange_weak(before, how)) {
  }
}

bool asked_to_stop() { return asked.load(std::memory_order_relaxed) != Stop::none; }

bool asked_to_stop_at_once() { return asked.load(std::memory_order_relaxed) == Stop::at_once; }

void forget_stop() { asked = Stop::none; }

void throw_if_stop_requested() {
  if (asked_to_stop()) {
    throw Stopped();
  }
}

}  // namespace baton
