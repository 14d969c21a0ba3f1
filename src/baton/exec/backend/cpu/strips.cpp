#include "baton/exec/backend/cpu/strips.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "baton/base/error.h"
#include "baton/exec/backend/cpu/elementwise.h"
#include "baton/exec/backend/cpu/member_range.h"

namespace baton::exec::cpu {
namespace {

using Reads = const float* const*;
using Writes = float* const*;

/// An operand as it lies in memory.
struct Operand {
  DType type;
  std::byte* first;
};

constexpr std::size_t most = 3;  // operands that are read, and that are written
constexpr std::int64_t strip = 1024;
using Strips = std::array<std::array<float, strip>, most>;

class StripKernel final : public Kernel {
 public:
  StripKernel(StripFunction function, std::vector<Operand> reads, std::vector<Operand> writes, std::int64_t count)
      : function_(function), reads_(std::move(reads)), writes_(std::move(writes)), count_(count) {
    check(reads_.size() <= most && writes_.size() <= most, "{} operands are read and {} written", reads_.size(), writes_.size());
  }

  void run(const threads::Member& member, std::int64_t) override {
    alignas(64) Strips wide_reads;
    alignas(64) Strips wide_writes;
    std::array<const float*, most> in{};
    std::array<float*, most> out{};
    const MemberRange part(member, count_, cache_line);
    Rounding done;
    for (std::int64_t at = part.begin; at < part.end; at += strip) {
      const std::int64_t count = std::min(strip, part.end - at);
      for (std::size_t i = 0; i < reads_.size(); ++i) {
        in[i] = reinterpret_cast<const float*>(reads_[i].first) + at;
        if (is_narrow(reads_[i].type)) {
          widen(reads_[i].type, place(reads_[i], at), wide_reads[i].data(), count);
          in[i] = wide_reads[i].data();
        }
      }
      for (std::size_t i = 0; i < writes_.size(); ++i) {
        out[i] = is_narrow(writes_[i].type) ? wide_writes[i].data() : reinterpret_cast<float*>(writes_[i].first) + at;
      }
      function_(in.data(), out.data(), count);
      for (std::size_t i = 0; i < writes_.size(); ++i) {
        if (is_narrow(writes_[i].type)) {
          done += narrow(writes_[i].type, out[i], place(writes_[i], at), count);
        }
      }
    }
    rounding_.add(done);
  }
  Rounding rounding() const override { return rounding_.total(); }

 private:
  static std::byte* place(const Operand& operand, std::int64_t at) { return operand.first + at * size_of(operand.type); }

  StripFunction function_;
  std::vector<Operand> reads_;
  std::vector<Operand> writes_;
  std::int64_t count_;
  SharedRounding rounding_;
};

}  // namespace

StripFunction strip_function(const op::Add&) {
  return [](Reads in, Writes out, std::int64_t count) { add(in[0], in[1], out[0], count); };
}
StripFunction strip_function(const op::Gelu& op) {
  return op.tanh ? +[](Reads in, Writes out, std::int64_t count) { gelu_tanh(in[0], out[0], count); }
                 : +[](Reads in, Writes out, std::int64_t count) { gelu(in[0], out[0], count); };
}
StripFunction strip_function(const op::GeluBackward& op) {
  return op.tanh ? +[](Reads in, Writes out, std::int64_t count) { gelu_tanh_backward(in[0], in[1], out[0], count); }
                 : +[](Reads in, Writes out, std::int64_t count) { gelu_backward(in[0], in[1], out[0], count); };
}
StripFunction strip_function(const op::SiluGate&) {
  return [](Reads in, Writes out, std::int64_t count) { silu_gate(in[0], in[1], out[0], count); };
}
StripFunction strip_function(const op::SiluGateBackward&) {
  return [](Reads in, Writes out, std::int64_t count) { silu_gate_backward(in[0], in[1], in[2], out[0], out[1], count); };
}

std::unique_ptr<Kernel> prepare_strips(const plan::Plan& plan, const plan::Task& task, const Addresses& addresses,
                                       StripFunction function) {
  const auto operands = [&](const std::vector<BufferId>& ids, const std::vector<std::byte*>& places) {
    std::vector<Operand> list;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      list.push_back({plan[ids[i]].dtype, places[i]});
    }
    return list;
  };
  return std::make_unique<StripKernel>(function, operands(task.reads, addresses.reads), operands(task.writes, addresses.writes),
                                       plan[task.reads[0]].shape.elements());
}

}  // namespace baton::exec::cpu
