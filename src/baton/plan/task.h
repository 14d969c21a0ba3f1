#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "baton/base/ids.h"
#include "baton/base/units.h"
#include "baton/op/op.h"
#include "baton/op/optimizer.h"
#include "baton/plan/move.h"

namespace baton::plan {

/// Runs an op on the task's device.
struct Compute {
  op::Op op;
  bool operator==(const Compute&) const = default;
};

/// One end of a copy between two devices. Both ends are tasks that share a meeting: a send reads a buffer of
/// its device, the receive of the same meeting writes one of its own.
struct Transfer {
  enum class End : std::uint8_t { send, receive };
  End end = End::send;
  MeetingId meeting;
  DeviceId peer;
  bool operator==(const Transfer&) const = default;
};

/// One member's part in a collective; all members share a meeting.
///   all_reduce   reads and writes the same buffers: afterwards all hold the sum, taken in order of rank
///   broadcast    rank 0 reads, the others write
///   reduce       all read; rank 0 writes the sum into the buffers it reads
///   reduce_scatter  all read whole buffers; each writes the pieces of the sum that fall to it
///   all_gather   each reads the pieces that fall to it; all write the whole buffers
/// `piece_of` gives the piece of each buffer that a rank owns; an empty piece is left out. Runs of `row` elements stay together:
/// pieces are whole rows, as many positions of a sequence.
/// An all_reduce with `sgd_rate` above zero applies the sum instead of keeping it: it reads gradients and then as many
/// parameters, and writes those: w −= rate · Σ g. A reduce_scatter with `accumulate` adds to the pieces it writes, so it reads
/// them after the whole buffers.
struct Collective {
  Move kind = Move::all_reduce;  // any but a copy
  MeetingId meeting;
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  double sgd_rate = 0;
  bool accumulate = false;
  std::int64_t row = 1;
  bool operator==(const Collective&) const = default;
};

/// An optimizer's step on n parameters. Reads n gradients, then writes (and so reads) n parameters and then
/// the states of the first, of the second, ... Gradients have the parameters' type, or are 16 bits wide if those are f32.
/// If the optimizer clips it then reads the square of the norm of all gradients, as SquaredSum writes it, and first multiplies the
/// gradients by `clip_factor` (op/clip.h).
/// With `scaled` it then reads a flag, as CheckFinite writes it, and the state of a loss scaler: it divides the
/// gradients by the scale, does nothing if the flag is not zero, and takes the number of the step from the state.
/// With `copies` it writes, after the states, a 16-bit copy of each of the n parameters as they are then.
struct Update {
  op::Optimizer optimizer;
  bool scaled = false;
  bool copies = false;
  bool operator==(const Update&) const = default;
};

/// Occupies its lane for that long and does nothing.
struct Delay {
  Nanoseconds duration;
  bool operator==(const Delay&) const = default;
};

/// Fills buffers of inputs and targets with the rows of the next step, from the data of the run. It runs on the host lane, in
/// parallel with the step.
struct Load {
  bool operator==(const Load&) const = default;
};

/// Copies the rows that were loaded for this step: from each buffer that a Load fills to the one that the step reads. After that
/// the next rows may be loaded.
struct Take {
  bool operator==(const Take&) const = default;
};

using Action = std::variant<Compute, Transfer, Collective, Update, Delay, Load, Take>;

/// A device works on its lanes side by side; within a lane tasks run one after the other, in the plan's order. `host` loads data.
enum class Lane : std::uint8_t { compute, communication, host };
constexpr std::size_t lane_count = 3;
/// The order in which a device that serves one lane at a time looks for the next task. Messages first, because other devices
/// wait for them.
constexpr std::array<Lane, lane_count> serving_order{Lane::communication, Lane::host, Lane::compute};

enum class Phase : std::uint8_t { forward, backward, update };

/// Labels for people and for schedules; -1 if not applicable.
struct Labels {
  Phase phase = Phase::forward;
  std::int32_t block = -1;
  std::int32_t micro_batch = -1;
  std::int32_t stage = -1;
  bool operator==(const Labels&) const = default;
};

/// One piece of work of one device. It touches only that device's buffers, and comes after only tasks of that
/// device: data passes between devices only through transfers and collectives. So a rank's slice of a plan is
/// complete without the rest.
struct Task {
  Action action;
  DeviceId device;
  Lane lane = Lane::compute;
  Labels labels;
  std::vector<BufferId> reads;
  std::vector<BufferId> writes;
  Bytes workspace;            // memory that it needs while it runs
  std::vector<TaskId> after;  // tasks of other lanes of the same device; those of its own lane are implied

  bool operator==(const Task&) const = default;
};

std::string_view to_text(Lane lane);
std::string_view to_text(Phase phase);
/// `linear`, `send`, `all_reduce`, `sgd`, `delay`, `load`, `take`: the operation of the task, in one word.
std::string_view verb(const Task& task);
/// The number of parameters that the task of an update changes: n.
std::size_t updated_count(const Task& task);
/// The number of the last buffers written by a task that are 16-bit copies of the first ones that it writes.
std::size_t copy_count(const Task& task);
/// True if it multiplies matrices.
bool is_product(const Task& task);
/// The buffers whose contents a task of a transfer or collective sends or receives. If members hold pieces, these are the
/// whole buffers.
std::span<const BufferId> payload(const Task& task);
/// The pieces that a member of a reduce_scatter writes or one of an all_gather reads.
std::span<const BufferId> pieces(const Task& task);
/// The elements of a buffer that one rank out of several owns: as even as possible, in order, in rows of `row` elements.
using Piece = Range;
constexpr Piece piece_of(std::int64_t elements, std::uint32_t rank, std::uint32_t size, std::int64_t row = 1) {
  const Range rows = divide(elements / row, size, rank, Remainder::spread);
  return {rows.begin * row, rows.end * row};
}
/// The piece of a member of a collective.
constexpr Piece piece_of(std::int64_t elements, const Collective& member) {
  return piece_of(elements, member.rank, member.size, member.row);
}
/// The kind of the meeting of a transfer's or collective's task, and the task's rank in it.
Move move_of(const Task& task);
std::uint32_t rank_of(const Task& task);
/// The meeting a task takes part in; not valid for tasks that work alone.
MeetingId meeting_of(const Task& task);

}  // namespace baton::plan
