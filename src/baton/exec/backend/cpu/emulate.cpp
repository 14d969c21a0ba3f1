#include "baton/exec/backend/cpu/emulate.h"

#include <array>
#include <cstring>
#include <map>

#include "baton/base/error.h"
#include "baton/exec/backend/cpu/member_range.h"

namespace baton::exec::cpu {
namespace {

using plan::Buffer;
using plan::Task;

Bytes aligned(Bytes size) { return Bytes((size.count + 63) / 64 * 64); }

Bytes float_bytes(const Buffer& buffer) { return aligned(Bytes(buffer.shape.elements() * 4)); }

/// Calls `visit(id)` for each 16-bit operand once, also where it is both read and written.
template <typename Visit>
void narrow_operands(std::span<const Buffer> buffers, const Task& task, Visit visit) {
  for (std::size_t i = 0; i < task.reads.size(); ++i) {
    if (is_narrow(buffers[task.reads[i].index()].dtype) &&
        std::find(task.reads.begin(), task.reads.begin() + static_cast<std::ptrdiff_t>(i), task.reads[i]) ==
            task.reads.begin() + static_cast<std::ptrdiff_t>(i)) {
      visit(task.reads[i]);
    }
  }
  for (const BufferId id : task.writes) {
    if (is_narrow(buffers[id.index()].dtype) && std::find(task.reads.begin(), task.reads.end(), id) == task.reads.end()) {
      visit(id);
    }
  }
}

/// A 16-bit operand and its copy in floats.
struct Copy {
  DType type;
  std::byte* narrow;
  float* wide;
  std::int64_t count;
};

class EmulatedKernel final : public Kernel {
 public:
  std::vector<Copy> in;
  std::vector<Copy> out;
  std::unique_ptr<Kernel> inner;

  void run(const threads::Member& member, std::int64_t step) override {
    for (const Copy& copy : in) {
      const MemberRange part(member, copy.count, cache_line);
      widen(copy.type, copy.narrow + part.begin * 2, copy.wide + part.begin, part.size());
    }
    member.sync();
    inner->run(member, step);
    member.sync();
    Rounding done;
    for (const Copy& copy : out) {
      const MemberRange part(member, copy.count, cache_line);
      done += narrow(copy.type, copy.wide + part.begin, copy.narrow + part.begin * 2, part.size());
    }
    rounding_.add(done);
  }
  Rounding rounding() const override { return rounding_.total(); }

 private:
  SharedRounding rounding_;
};

class CastKernel final : public Kernel {
 public:
  CastKernel(DType from, DType to, const std::byte* x, std::byte* y, std::int64_t count)
      : from_(from), to_(to), x_(x), y_(y), count_(count) {}

  void run(const threads::Member& member, std::int64_t) override {
    constexpr std::int64_t strip = 1024;
    std::array<float, strip> floats;
    Rounding done;
    const MemberRange part(member, count_, cache_line);
    for (std::int64_t at = part.begin; at < part.end; at += strip) {
      const std::int64_t count = std::min(strip, part.end - at);
      const std::byte* x = x_ + at * size_of(from_);
      std::byte* y = y_ + at * size_of(to_);
      if (to_ == DType::f32) {
        widen(from_, x, reinterpret_cast<float*>(y), count);
      } else if (from_ == DType::f32) {
        done += narrow(to_, reinterpret_cast<const float*>(x), y, count);
      } else {
        widen(from_, x, floats.data(), count);
        done += narrow(to_, floats.data(), y, count);
      }
    }
    rounding_.add(done);
  }
  Rounding rounding() const override { return rounding_.total(); }

 private:
  DType from_;
  DType to_;
  const std::byte* x_;
  std::byte* y_;
  std::int64_t count_;
  SharedRounding rounding_;
};

}  // namespace

bool has_narrow_operands(std::span<const Buffer> buffers, const Task& task) {
  bool found = false;
  narrow_operands(buffers, task, [&](BufferId) { found = true; });
  return found;
}

Bytes emulation_workspace(std::span<const Buffer> buffers, const Task& task, Bytes inner) {
  Bytes total = aligned(inner);
  narrow_operands(buffers, task, [&](BufferId id) { total += float_bytes(buffers[id.index()]); });
  return total;
}

std::unique_ptr<Kernel> emulate(const plan::Plan& plan, const Task& task, const Addresses& addresses, Bytes inner,
                                const std::function<std::unique_ptr<Kernel>(const Addresses&)>& prepare) {
  std::map<BufferId, float*> copies;
  std::int64_t offset = aligned(inner).count;
  narrow_operands(plan.buffers(), task, [&](BufferId id) {
    copies[id] = reinterpret_cast<float*>(addresses.workspace + offset);
    offset += float_bytes(plan[id]).count;
  });
  auto kernel = std::make_unique<EmulatedKernel>();
  Addresses wide = addresses;
  const auto redirect = [&](const std::vector<BufferId>& ids, std::vector<std::byte*>& places, std::vector<Copy>& list) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (const auto copy = copies.find(ids[i]); copy != copies.end()) {
        list.push_back({plan[ids[i]].dtype, places[i], copy->second, plan[ids[i]].shape.elements()});
        places[i] = reinterpret_cast<std::byte*>(copy->second);
      }
    }
  };
  redirect(task.reads, wide.reads, kernel->in);
  redirect(task.writes, wide.writes, kernel->out);
  kernel->inner = prepare(wide);
  return kernel;
}

std::unique_ptr<Kernel> prepare_cast(const plan::Plan& plan, const Task& task, const Addresses& addresses) {
  return std::make_unique<CastKernel>(plan[task.reads[0]].dtype, plan[task.writes[0]].dtype, addresses.reads[0],
                                      addresses.writes[0], plan[task.reads[0]].shape.elements());
}

}  // namespace baton::exec::cpu
