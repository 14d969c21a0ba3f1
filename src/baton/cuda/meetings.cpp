#include "baton/cuda/meetings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>

#include "baton/base/error.h"
#include "baton/cost/link_time.h"
#include "baton/cuda/apply.h"
#include "baton/cuda/kernels.h"
#include "baton/cuda/launch.h"
#include "baton/cuda/nccl.h"
#include "baton/cuda/nccl_part.h"
#include "baton/cuda/peers.h"
#include "baton/cuda/status.h"
#include "baton/cuda/table.h"
#include "baton/exec/transport/dealing.h"

namespace baton::cuda {
namespace {

using plan::Collective;

constexpr std::int64_t copy_bytes = 16384;

void add_copies(std::vector<CopyRun>& runs, const std::byte* from, std::byte* to, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += copy_bytes) {
    runs.push_back({from + at, to + at, std::min(copy_bytes, bytes - at)});
  }
}

}  // namespace

class Meetings::Impl {
 public:
  Impl(const plan::Plan& plan, std::span<const exec::Addresses> addresses, std::span<const std::unique_ptr<GpuPlace>> places,
       const std::optional<cluster::Link>& link)
      : plan_(plan), addresses_(addresses), places_(places), link_(link), meetings_(plan.meeting_count()) {
    for (std::size_t m = 0; m < meetings_.size(); ++m) {
      const std::span<const TaskId> members = plan.members(MeetingId(m));
      if (!members.empty() && std::all_of(members.begin(), members.end(),
                                          [&](TaskId member) { return places_[plan_[member].device.index()] != nullptr; })) {
        open(MeetingId(m));
      }
    }
  }

  void enqueue(MeetingId id, std::span<const cudaStream_t> streams) const {
    const Meeting& meeting = meetings_[id.index()];
    const auto exchange = [&] {
      for (std::size_t i = 0; i < streams.size(); ++i) {
        if (meeting.parts[i]) {
          meeting.places[i]->enter();
          meeting.parts[i](streams[i]);
        }
      }
    };
    if (meeting.nccl) {
      nccl::in_group(exchange);
    } else {
      exchange();
    }
    for (std::size_t i = 0; i < meeting.afterwards.size(); ++i) {
      if (meeting.afterwards[i]) {
        meeting.places[i]->enter();
        meeting.afterwards[i](streams[i]);
      }
    }
  }

 private:
  struct Meeting {
    std::vector<Launch> parts;       // by member, in the plan's order
    std::vector<Launch> afterwards;  // likewise, once NCCL's part is done
    std::vector<const GpuPlace*> places;
    bool nccl = false;
  };

  /// One meeting while it is prepared: the buffers of its members, by rank.
  struct MeetingSetup {
    const Collective* collective = nullptr;
    std::vector<const plan::Task*> tasks;  // by rank
    std::vector<const exec::Addresses*> at;
    std::vector<const GpuPlace*> places;
    std::int64_t min_duration = 0;  // nanoseconds on an emulated link
    bool several_gpus = false;

    int members() const { return static_cast<int>(tasks.size()); }
    std::vector<int> ordinals() const {
      std::vector<int> list;
      std::transform(places.begin(), places.end(), std::back_inserter(list),
                     [](const GpuPlace* place) { return place->ordinal(); });
      return list;
    }
  };

  void open(MeetingId id) {
    const std::span<const TaskId> members = plan_.members(id);
    MeetingSetup setup;
    setup.collective = std::get_if<Collective>(&plan_[members[0]].action);
    setup.tasks.resize(members.size());
    setup.at.resize(members.size());
    setup.places.resize(members.size());
    std::set<int> gpus;
    for (const TaskId member : members) {
      const plan::Task& task = plan_[member];
      const std::size_t rank = rank_of(task);
      setup.tasks[rank] = &task;
      setup.at[rank] = &addresses_[member.index()];
      setup.places[rank] = places_[task.device.index()].get();
      gpus.insert(setup.places[rank]->ordinal());
    }
    setup.several_gpus = gpus.size() > 1;
    if (link_) {
      setup.min_duration = cost::link_time(plan_, id, *link_).count;
    }
    std::vector<Launch> by_rank(members.size());
    Meeting& meeting = meetings_[id.index()];
    std::vector<Launch> afterwards;
    const bool reach = !setup.several_gpus || enable_peers(setup.ordinals());
    if (setup.collective == nullptr) {  // if one GPU cannot reach the other, the driver stages the copy
      by_rank[1] = copy_part(setup, setup.at[0]->reads, setup.at[1]->writes, plan_[setup.tasks[0]->reads[0]].size().count);
    } else if (setup.several_gpus && by_nccl(setup, reach)) {
      meeting.nccl = true;
      nccl_parts(setup, by_rank, afterwards);
    } else {
      collective_parts(setup, by_rank);
    }
    for (const TaskId member : members) {
      const std::size_t rank = rank_of(plan_[member]);
      meeting.parts.push_back(by_rank[rank]);
      meeting.places.push_back(setup.places[rank]);
      if (!afterwards.empty()) {
        meeting.afterwards.push_back(afterwards[rank]);
      }
    }
  }

  /// NCCL refuses two members on one GPU. Collectives on pieces use kernels of ours if these reach all members.
  static bool by_nccl(const MeetingSetup& setup, bool reach) {
    const plan::MoveRule& rule = plan::rule_of(setup.collective->kind);
    const std::vector<int> ordinals = setup.ordinals();
    const bool apart = std::set<int>(ordinals.begin(), ordinals.end()).size() == ordinals.size();
    if (!reach && !apart) {
      throw usage_error("GPUs {} cannot reach each other's memory, which several devices on one of them would need: use whole GPUs",
                        fmt::join(ordinals, ", "));
    }
    return apart && (!reach || rule.owner != plan::MoveRule::Owner::piece);
  }

  Launch copy_part(const MeetingSetup& setup, const std::vector<std::byte*>& from, const std::vector<std::byte*>& to,
                   std::int64_t bytes) {
    if (setup.several_gpus) {
      setup.places[1]->enter();
      const auto begun = std::make_shared<Table<std::int64_t>>(std::span<const std::int64_t>(std::array<std::int64_t, 1>{}));
      return [=, from = from[0], to = to[0], source = setup.places[0]->ordinal(), target = setup.places[1]->ordinal(),
              min_duration = setup.min_duration](cudaStream_t stream) {
        if (min_duration > 0) {
          mark_time(begun->data(), stream);
        }
        require(cudaMemcpyPeerAsync(to, target, from, source, static_cast<std::size_t>(bytes), stream), "copying");
        if (min_duration > 0) {
          hold_since(begun->data(), min_duration, stream);
        }
      };
    }
    std::vector<CopyRun> runs;
    add_copies(runs, from[0], to[0], bytes);
    const GpuPlace& place = *setup.places[1];
    place.enter();
    const auto table = std::make_shared<Table<CopyRun>>(std::span<const CopyRun>(runs));
    return [&place, table, count = static_cast<int>(runs.size()), min_duration = setup.min_duration](cudaStream_t stream) {
      place.carry(stream, [&](cudaStream_t carrier, int multiprocessors) {
        copy_runs(table->data(), count, min_duration, multiprocessors, carrier);
      });
    };
  }

  Launch copies(const std::vector<CopyRun>& runs, const GpuPlace& place, std::int64_t min_duration) {
    if (runs.empty()) {
      return min_duration > 0 ? Launch([min_duration](cudaStream_t stream) { delay(min_duration, stream); }) : Launch();
    }
    place.enter();
    const auto table = std::make_shared<Table<CopyRun>>(std::span<const CopyRun>(runs));
    return [=, count = static_cast<int>(runs.size()), multiprocessors = place.multiprocessors()](cudaStream_t stream) {
      copy_runs(table->data(), count, min_duration, multiprocessors, stream);
    };
  }

  void collective_parts(const MeetingSetup& setup, std::vector<Launch>& by_rank) {
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      const plan::MoveRule& rule = plan::rule_of(setup.collective->kind);
      if (rule.sums) {
        by_rank[rank] = sum(setup, rank);
      } else if (rule.owner == plan::MoveRule::Owner::piece) {
        by_rank[rank] = gather(setup, rank);
      } else if (rank > 0) {
        std::vector<CopyRun> runs;
        for (std::size_t b = 0; b < setup.tasks[rank]->writes.size(); ++b) {
          add_copies(runs, setup.at[0]->reads[b], setup.at[rank]->writes[b], plan_[setup.tasks[rank]->writes[b]].size().count);
        }
        by_rank[rank] = copies(runs, *setup.places[rank], setup.min_duration);
      }
    }
  }

  /// Copies the piece of one rank into the whole buffers of all.
  Launch gather(const MeetingSetup& setup, std::size_t rank) {
    std::vector<CopyRun> runs;
    const std::vector<BufferId>& whole = setup.tasks[rank]->writes;
    std::size_t piece = 0;
    for (std::size_t b = 0; b < whole.size(); ++b) {
      const std::int64_t width = size_of(plan_[whole[b]].dtype);
      const plan::Piece range = plan::piece_of(plan_[whole[b]].shape.elements(), static_cast<std::uint32_t>(rank),
                                               setup.collective->size, setup.collective->row);
      if (range.size() == 0) {
        continue;
      }
      for (const exec::Addresses* target : setup.at) {
        add_copies(runs, setup.at[rank]->reads[piece], target->writes[b] + range.begin * width, range.size() * width);
      }
      ++piece;
    }
    return copies(runs, *setup.places[rank], setup.min_duration);
  }

  /// A rank's share of a sum: every n-th run of elements, all of them at the root, or its own pieces.
  Launch sum(const MeetingSetup& setup, std::size_t rank) {
    const Collective& collective = *setup.collective;
    const std::span<const BufferId> buffers = plan::payload(*setup.tasks[rank]);
    const bool pieces = collective.kind == plan::Move::reduce_scatter;
    if (collective.kind == plan::Move::reduce && rank > 0) {
      return {};
    }
    std::vector<SumRun> runs;
    std::size_t number = 0;
    std::int32_t piece = 0;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      plan::Piece range{0, plan_[buffers[b]].shape.elements()};
      if (pieces) {
        range = plan::piece_of(range.end, static_cast<std::uint32_t>(rank), collective.size, collective.row);
      }
      for (std::int64_t at = range.begin; at < range.end; at += sum_elements, ++number) {
        if (collective.kind == plan::Move::all_reduce && number % by_members(setup) != rank) {
          continue;
        }
        runs.push_back({at, pieces ? at - range.begin : at, static_cast<std::int32_t>(b),
                        pieces ? piece : static_cast<std::int32_t>(b),
                        static_cast<std::int32_t>(std::min(sum_elements, range.end - at))});
      }
      piece += range.size() > 0 ? 1 : 0;
    }
    if (runs.empty()) {
      return copies({}, *setup.places[rank], setup.min_duration);
    }
    std::vector<void*> sources;
    std::vector<void*> targets;
    for (const exec::Addresses* at : setup.at) {
      sources.insert(sources.end(), at->reads.begin(), at->reads.begin() + static_cast<std::ptrdiff_t>(buffers.size()));
      if (collective.kind == plan::Move::all_reduce) {
        targets.insert(targets.end(), at->writes.begin(), at->writes.end());
      }
    }
    if (collective.kind != plan::Move::all_reduce) {
      targets.insert(targets.end(), setup.at[rank]->writes.begin(), setup.at[rank]->writes.end());
    }
    return launch_sums(plan_[buffers[0]].dtype, runs, sources, targets,
                       {.source_count = static_cast<int>(buffers.size()),
                        .members = setup.members(),
                        .target_count = static_cast<int>(setup.tasks[rank]->writes.size()),
                        .target_members = collective.kind == plan::Move::all_reduce ? setup.members() : 1,
                        .rate = collective.accumulate ? -1 : collective.sgd_rate},
                       setup.min_duration, *setup.places[rank]);
  }

  static std::size_t by_members(const MeetingSetup& setup) { return setup.tasks.size(); }

  void nccl_parts(const MeetingSetup& setup, std::vector<Launch>& by_rank, std::vector<Launch>& afterwards) {
    const std::vector<std::shared_ptr<nccl::Communicator>> members = nccl::join_here(setup.ordinals());
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      NcclPart part = nccl_part(plan_, *setup.tasks[rank], *setup.at[rank], *setup.places[rank], members[rank], setup.min_duration);
      by_rank[rank] = std::move(part.exchange);
      afterwards.push_back(std::move(part.afterwards));
    }
  }

  plan::Plan plan_;
  std::span<const exec::Addresses> addresses_;
  std::span<const std::unique_ptr<GpuPlace>> places_;
  std::optional<cluster::Link> link_;
  std::vector<Meeting> meetings_;
};

Meetings::Meetings(const plan::Plan& plan, std::span<const exec::Addresses> addresses,
                   std::span<const std::unique_ptr<GpuPlace>> places, const std::optional<cluster::Link>& link)
    : impl_(std::make_unique<Impl>(plan, addresses, places, link)) {}

Meetings::~Meetings() = default;

void Meetings::enqueue(MeetingId meeting, std::span<const cudaStream_t> streams) const { impl_->enqueue(meeting, streams); }

}  // namespace baton::cuda
