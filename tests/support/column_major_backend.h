#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baton/exec/backend/host_backends.h"

namespace baton::test {

/// A backend with two memory layouts of its own, which the rest of the program has never heard of: parameters with several axes lie
/// column after column, vectors back to front. Its kernels are the reference's, between two rearrangements. It fuses what its list
/// says.
class ColumnMajorBackend final : public exec::HostBackend {
 public:
  explicit ColumnMajorBackend(std::vector<op::Op> joined = {}, bool gradient_with_sgd = false)
      : joined_(std::move(joined)), gradient_with_sgd_(gradient_with_sgd) {}

  std::string_view name() const override { return "column_major"; }
  plan::Target target() const override {
    return {.joined = joined_,
            .gradient_with_sgd = gradient_with_sgd_,
            .loads = true,
            .layout = [](std::span<const plan::Buffer> buffers, const plan::Task& task, BufferId operand) -> std::string {
              const bool computes = std::holds_alternative<plan::Compute>(task.action);
              return !computes ? "" : plan::axes_of_whole(buffers[operand.index()]) > 1 ? "column_major" : "reversed";
            }};
  }
  std::vector<exec::MemoryLayout> layouts() const override {
    const auto reversed = [](const Shape& shape, std::int64_t at) { return shape.elements() - 1 - at; };
    return {{.name = "column_major",
             .position =
                 [](const Shape& shape, std::int64_t index) {
                   const std::int64_t columns = shape.elements() / shape[0];
                   return index % columns * shape[0] + index / columns;
                 },
             .index = [](const Shape& shape,
                         std::int64_t at) { return at % shape[0] * (shape.elements() / shape[0]) + at / shape[0]; }},
            {.name = "reversed", .position = reversed, .index = reversed}};
  }
  bool has_kernel(const plan::Plan&, const plan::Task&) const override { return true; }
  int team_size(int) const override { return 1; }
  std::unique_ptr<exec::Kernel> prepare(plan::Plan plan, TaskId task, const exec::Addresses& addresses, int team) const override {
    return std::make_unique<Rearranged>(*this, std::move(plan), task, addresses, team);
  }

 private:
  /// The reference's kernel on row-major copies of the operands that are laid out otherwise. What works on pieces works element by
  /// element, and takes them as they are.
  class Rearranged final : public exec::Kernel {
   public:
    Rearranged(const ColumnMajorBackend& backend, plan::Plan plan, TaskId task, exec::Addresses addresses, int team)
        : plan_(std::move(plan)), layouts_(backend.layouts()) {
      copy_operands(plan_[task].reads, addresses.reads, true);
      copy_operands(plan_[task].writes, addresses.writes, false);
      inner_ = backend.reference_->prepare(plan_, task, addresses, team);
    }
    void run(const threads::Member& member, std::int64_t step) override {
      for (auto& [id, copy] : copies_) {
        move_elements(copy, copy.read, [](std::byte* row_major, std::byte* own) { return std::pair(row_major, own); });
      }
      inner_->run(member, step);
      for (auto& [id, copy] : copies_) {
        move_elements(copy, copy.written, [](std::byte* row_major, std::byte* own) { return std::pair(own, row_major); });
      }
    }

   private:
    struct Copy {
      const plan::Buffer* buffer;  // of the plan
      const exec::MemoryLayout* layout;
      std::byte* own;
      std::vector<std::byte> row_major;
      bool read = false;
      bool written = false;
    };

    void copy_operands(const std::vector<BufferId>& ids, std::vector<std::byte*>& addresses, bool read) {
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const plan::Buffer& buffer = plan_[ids[i]];
        const auto* part = std::get_if<plan::ParameterPart>(&buffer.content);
        if (buffer.layout.empty() || (part != nullptr && part->piece_end != 0)) {
          continue;
        }
        Copy& copy = copies_[ids[i]];
        if (copy.row_major.empty()) {
          copy.buffer = &buffer;
          copy.layout = exec::layout_of(buffer, layouts_);
          copy.own = addresses[i];
          copy.row_major.resize(static_cast<std::size_t>(buffer.size().count));
        }
        (read ? copy.read : copy.written) = true;
        addresses[i] = copy.row_major.data();
      }
    }
    template <typename Direction>
    static void move_elements(Copy& copy, bool wanted, Direction direction) {
      const std::int64_t size = size_of(copy.buffer->dtype);
      for (std::int64_t i = 0; wanted && i < copy.buffer->shape.elements(); ++i) {
        const auto [to, from] = direction(copy.row_major.data() + i * size,
                                          copy.own + copy.layout->position(copy.buffer->shape, i) * size);
        std::memcpy(to, from, static_cast<std::size_t>(size));
      }
    }

    plan::Plan plan_;
    std::vector<exec::MemoryLayout> layouts_;
    std::map<BufferId, Copy> copies_;
    std::unique_ptr<exec::Kernel> inner_;
  };

  std::unique_ptr<exec::HostBackend> reference_ = exec::make_reference_backend();
  std::vector<op::Op> joined_;
  bool gradient_with_sgd_;
};

}  // namespace baton::test
