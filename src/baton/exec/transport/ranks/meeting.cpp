#include "baton/exec/transport/ranks/meeting.h"

#include "baton/base/clock.h"
#include "baton/base/error.h"

namespace baton::exec {
namespace {

constexpr std::size_t none = ~std::size_t{0};

}  // namespace

RankMeeting::RankMeeting(std::shared_ptr<ranks::World> world, std::vector<threads::Doorbell*> members)
    : world_(std::move(world)), doorbells_(std::move(members)) {}

std::size_t RankMeeting::add(const ranks::Message& message, After after) { return add_node(message, after); }
std::size_t RankMeeting::add(Operation operation, After after) { return add_node(std::move(operation), after); }
void RankMeeting::slow_down(Nanoseconds min_duration, After after) { add_node(Mark{min_duration}, after); }

std::size_t RankMeeting::add_node(std::variant<ranks::Message, Operation, Mark> what, const After& after) {
  const std::size_t number = nodes_.size();
  operation_count_ += std::holds_alternative<Operation>(what) ? 1 : 0;
  nodes_.push_back({std::move(what), static_cast<int>(after.size()), {}});
  for (const std::size_t earlier : after) {
    check(earlier < number, "node {} of a meeting waits for {}", number, earlier);
    nodes_[earlier].then.push_back(number);
  }
  return number;
}

void RankMeeting::begin_step() {
  if (!waits_) {
    waits_ = std::make_unique<Counter[]>(nodes_.size());
    operations_ = std::make_unique<std::atomic<std::size_t>[]>(operation_count_);
  }
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    waits_[n].value.store(nodes_[n].after, std::memory_order_relaxed);
  }
  for (std::size_t i = 0; i < operation_count_; ++i) {
    operations_[i].store(none, std::memory_order_relaxed);
  }
  arrived_.store(0, std::memory_order_relaxed);
  met_.store(false, std::memory_order_relaxed);
  if (operation_count_ > 0) {  // a step that was given up has left some, which are passed over
    const std::size_t steps = (tail_.load(std::memory_order_relaxed) + operation_count_ - 1) / operation_count_;
    tail_.store(steps * operation_count_, std::memory_order_release);
    head_.store(steps * operation_count_, std::memory_order_release);
  }
  left_.store(nodes_.size(), std::memory_order_relaxed);
}

void RankMeeting::arrive() {
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < doorbells_.size()) {
    return;
  }
  met_.store(true, std::memory_order_release);
  // Receives first: a message whose receive is open needs no buffer on the way.
  for (const bool receives : {true, false}) {
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const auto* message = std::get_if<ranks::Message>(&nodes_[n].what);
      if (nodes_[n].after == 0 && receives == (message != nullptr && message->end == ranks::Message::End::receive)) {
        begin(n);
      }
    }
  }
  ring();
}

void RankMeeting::begin(std::size_t number) {
  Node& node = nodes_[number];
  if (const auto* message = std::get_if<ranks::Message>(&node.what)) {
    world_->post(*message, *this, number);
  } else if (std::holds_alternative<Operation>(node.what)) {
    operations_[tail_.fetch_add(1, std::memory_order_acq_rel) % operation_count_].store(number, std::memory_order_release);
    ring();
  } else {
    over_at_.store((now() + std::get<Mark>(node.what).min_duration).count, std::memory_order_relaxed);
    complete(number);
  }
}

void RankMeeting::complete(std::size_t number) {
  for (const std::size_t next : nodes_[number].then) {
    if (waits_[next].value.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      begin(next);
    }
  }
  if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    ring();
  }
}

void RankMeeting::work() {
  std::size_t head = head_.load(std::memory_order_acquire);
  while (head < tail_.load(std::memory_order_acquire)) {
    const std::size_t number = operations_[head % operation_count_].load(std::memory_order_acquire);
    if (number == none) {
      break;  // about to be written; its writer rings when it is
    }
    if (!head_.compare_exchange_weak(head, head + 1, std::memory_order_acq_rel)) {
      continue;
    }
    if (const Rounding rounding = std::get<Operation>(nodes_[number].what).run(); rounding.values > 0) {
      rounding_.add(rounding);  // before its end, after which it may be asked for
    }
    complete(number);
    head = head_.load(std::memory_order_acquire);
  }
}

void RankMeeting::ring() const {
  for (threads::Doorbell* bell : doorbells_) {
    bell->ring();
  }
}

}  // namespace baton::exec
