#include <algorithm>
#include <map>

#include "baton/base/error.h"
#include "baton/cuda/apply.h"
#include "baton/cuda/arena.h"
#include "baton/cuda/event.h"
#include "baton/cuda/status.h"
#include "baton/cuda/stream_transport.h"
#include "baton/exec/addresses.h"
#include "baton/exec/transport/transport.h"
#include "baton/threads/team.h"

namespace baton::cuda {
namespace {

/// A run of bytes on the device and its place on the host.
struct Stage {
  std::byte* device;
  std::byte* host;
  std::size_t bytes;
};

class StagedStreamExchange final : public StreamExchange {
 public:
  StagedStreamExchange(cudaStream_t stream, std::vector<Stage> out, std::vector<Stage> in, Launch afterwards,
                       std::unique_ptr<exec::Exchange> exchange)
      : stream_(stream),
        out_(std::move(out)),
        in_(std::move(in)),
        afterwards_(std::move(afterwards)),
        exchange_(std::move(exchange)) {}

  void begin() override {
    for (const Stage& one : out_) {
      require(cudaMemcpyAsync(one.host, one.device, one.bytes, cudaMemcpyDeviceToHost, stream_), "copying to the host");
    }
    come_.record(stream_);
    posted_ = false;
  }

  bool progress() override {
    if (!posted_) {
      if (!come_.passed()) {
        return false;
      }
      posted_ = true;
      exchange_->post();
    }
    if (!exchange_->progress(true)) {
      return false;
    }
    for (const Stage& one : in_) {
      require(cudaMemcpyAsync(one.device, one.host, one.bytes, cudaMemcpyHostToDevice, stream_), "copying from the host");
    }
    if (afterwards_) {
      afterwards_(stream_);
      require_launched("launching a message");
    }
    return true;
  }

  bool has_come() const override { return posted_; }

 private:
  cudaStream_t stream_;
  std::vector<Stage> out_;
  std::vector<Stage> in_;
  Launch afterwards_;  // may be empty
  std::unique_ptr<exec::Exchange> exchange_;
  Event come_{Event::Purpose::order};
  bool posted_ = false;
};

class StagedStreamTransport final : public StreamTransport {
 public:
  explicit StagedStreamTransport(const StreamTransportContext& context)
      : slice_(context.slice), plan_(context.slice.plan()), world_(context.world) {
    exec::TransportContext messages{.plan = plan_,
                                    .addresses = std::vector<exec::Addresses>(plan_.tasks().size()),
                                    .doorbells = {},
                                    .teams = {},
                                    .link = context.link};
    for (const MeetingRoute route : context.routes) {
      messages.staged.push_back(route == MeetingRoute::staged);
    }
    for (const std::unique_ptr<GpuPlace>& place : slice_.places()) {
      bells_.push_back(place ? std::make_unique<threads::Doorbell>() : nullptr);
      teams_.push_back(place ? std::make_unique<threads::Team>(std::vector<int>{0}, 0) : nullptr);
      messages.doorbells.push_back(bells_.back().get());
      messages.teams.push_back(teams_.back().get());
    }
    for (std::size_t d = 0; d < slice_.places().size(); ++d) {
      for (std::size_t lane = 0; lane < plan::lane_count && slice_.is_here(DeviceId(d)); ++lane) {
        open_lane(DeviceId(d), static_cast<plan::Lane>(lane), messages);
      }
    }
    transport_ = exec::make_rank_transport(std::move(messages), world_, context.rank_of_device);
  }

  ~StagedStreamTransport() override {
    transport_.reset();
    if (world_->under_way()) {  // after a failure: what other ranks may still write into stays
      for (Pinned& memory : memory_) {
        memory.abandon();
      }
    }
  }

  std::unique_ptr<StreamExchange> prepare(TaskId id) override {
    const plan::Task& task = plan_[id];
    const auto* collective = std::get_if<plan::Collective>(&task.action);
    const bool applies = collective != nullptr && collective->sgd_rate > 0;
    const std::span<const BufferId> payload = plan::payload(task);
    const std::span<const BufferId> reads = task.reads;
    const std::vector<BufferId> out(reads.begin(),
                                    applies ? reads.begin() + static_cast<std::ptrdiff_t>(payload.size()) : reads.end());
    const std::vector<BufferId> in = applies ? out : task.writes;
    slice_.place(task.device).enter();
    Launch afterwards;
    if (applies) {
      std::vector<Applied> sums;
      for (std::size_t b = 0; b < payload.size(); ++b) {
        sums.push_back({slice_.address(payload[b]), slice_.address(task.writes[b]), plan_[payload[b]].shape.elements()});
      }
      afterwards = apply_sums(plan_[payload[0]].dtype, sums, collective->sgd_rate, slice_.place(task.device));
    }
    return std::make_unique<StagedStreamExchange>(slice_.stream(task), stages(id, out), stages(id, in), std::move(afterwards),
                                                  transport_->prepare(id));
  }

  void begin_step() override { transport_->begin_step(); }
  void look() override { transport_->poll(); }
  void give_up() noexcept override {}

 private:
  /// The tasks of a lane follow one another in its stream, so their buffers pass through one place.
  void open_lane(DeviceId device, plan::Lane lane, exec::TransportContext& messages) {
    const auto is_staged = [&](TaskId id) {
      const MeetingId meeting = plan::meeting_of(plan_[id]);
      return meeting.valid() && messages.staged[meeting.index()];
    };
    std::int64_t most = 0;
    for (const TaskId id : plan_.lane(device, lane)) {
      if (is_staged(id)) {
        std::int64_t used = 0;
        for (const auto& [buffer, offset] : offsets(id)) {
          used = std::max(used, offset + plan_[buffer].size().count);
        }
        most = std::max(most, used);
      }
    }
    if (most == 0) {
      return;
    }
    slice_.place(device).enter();
    memory_.emplace_back(most);
    for (const TaskId id : plan_.lane(device, lane)) {
      if (is_staged(id)) {
        for (const auto& [buffer, offset] : offsets(id)) {
          hosts_[id][buffer] = memory_.back().at(offset);
        }
        messages.addresses[id.index()] = exec::addresses_of(plan_[id], nullptr,
                                                            [&](BufferId buffer) { return hosts_[id].at(buffer); });
      }
    }
  }

  /// The offsets of a task's buffers in that place, each buffer once.
  std::map<BufferId, std::int64_t> offsets(TaskId id) const {
    constexpr std::int64_t alignment = 64;
    std::map<BufferId, std::int64_t> list;
    std::int64_t next = 0;
    for (const std::vector<BufferId>* ids : {&plan_[id].reads, &plan_[id].writes}) {
      for (const BufferId buffer : *ids) {
        if (list.emplace(buffer, next).second) {
          next += (plan_[buffer].size().count + alignment - 1) / alignment * alignment;
        }
      }
    }
    return list;
  }

  std::vector<Stage> stages(TaskId id, const std::vector<BufferId>& buffers) const {
    std::vector<Stage> list;
    for (const BufferId buffer : buffers) {
      list.push_back({slice_.address(buffer), hosts_.at(id).at(buffer), static_cast<std::size_t>(plan_[buffer].size().count)});
    }
    return list;
  }

  const Slice& slice_;
  plan::Plan plan_;
  std::shared_ptr<ranks::World> world_;
  std::vector<std::unique_ptr<threads::Doorbell>> bells_;  // by device
  std::vector<std::unique_ptr<threads::Team>> teams_;      // likewise: one thread, which asks
  std::vector<Pinned> memory_;
  std::map<TaskId, std::map<BufferId, std::byte*>> hosts_;
  std::unique_ptr<exec::Transport> transport_;
};

}  // namespace

std::unique_ptr<StreamTransport> make_staged_transport(const StreamTransportContext& context) {
  return std::make_unique<StagedStreamTransport>(context);
}

}  // namespace baton::cuda
